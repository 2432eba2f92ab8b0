"""What `check_renderer` says of the optional `thought`, and of `extends` claiming too much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from rti import Message
from rti.testing import check_renderer


class Letters:
    """One letter a token; thinking stands in (brackets) in front; "." ends a turn."""

    stop_ids: tuple[int, ...] = (ord("."),)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(map(chr, ids))

    def turn(self, message: Message) -> tuple[int, ...]:
        if message.token_ids is not None:
            return message.token_ids
        reasoning = f"({message.reasoning})" if message.reasoning else ""
        return self.encode(f"{reasoning}{message.content}.")

    def prompt(self, messages: Sequence[Message], tools: Sequence[Any] = ()) -> tuple[int, ...]:
        said = [
            (ord(m.role[0]), *(self.turn(m) if m.role == "assistant" else self.encode(m.content)))
            for m in messages
        ]
        return (*(i for ids in said for i in ids), ord("a"))

    def thought(self, ids: Sequence[int]) -> int:
        text = self.decode(ids)
        if not text.startswith("("):
            return 0
        return text.index(")") + 1 if ")" in text else len(ids)

    def parse(self, ids: Iterable[int]) -> Message:
        ids = tuple(ids)
        text, cut = self.decode(ids).replace(".", ""), Letters.thought(self, ids)
        return Message("assistant", text[cut:], text[1 : cut - 1] if cut else "", token_ids=ids)

    def extends(self, before: Sequence[int], after: Sequence[int]) -> bool:
        return tuple(after[: len(before)]) == tuple(before)


CHAT = [
    [
        Message("user", "hi"),
        Message("assistant", "yes", "well"),
        Message("user", "and"),
        Message("assistant", "no"),
    ]
]


def test_a_sound_one_passes_with_and_without_thought() -> None:
    check_renderer(Letters(), CHAT)

    class NeverThinks(Letters):
        thought = None  # type: ignore[assignment]

        def parse(self, ids: Iterable[int]) -> Message:
            return Message("assistant", self.decode(ids).replace(".", ""), token_ids=tuple(ids))

    check_renderer(NeverThinks(), [[Message("user", "hi"), Message("assistant", "yes")]])


class TooMany(Letters):
    def thought(self, ids: Sequence[int]) -> int:
        return len(ids) + 1


class Negative(Letters):
    def thought(self, ids: Sequence[int]) -> int:
        return super().thought(ids) or -1


class CutsContent(Letters):
    def thought(self, ids: Sequence[int]) -> int:
        return min(len(ids), super().thought(ids) + 1)


class LeavesReasoning(Letters):
    def thought(self, ids: Sequence[int]) -> int:
        return min(len(ids), 1)


class NeedsAnEnd(Letters):
    def thought(self, ids: Sequence[int]) -> int:
        return self.decode(ids).index(")") + 1 if 40 in ids else 0


class Counts(Letters):
    calls = 0

    def thought(self, ids: Sequence[int]) -> int:
        self.calls += 1
        return self.calls % 2


@pytest.mark.parametrize(
    ("renderer", "says"),
    [
        (TooMany, "there are 10 ids"),
        (Negative, "thought gives -1"),
        (CutsContent, "cuts into the content: what is left is 'es.'"),
        (LeavesReasoning, "the reasoning 'well' is not in them"),
        (NeedsAnEnd, "raises ValueError"),
        (Counts, "thought is not pure"),
    ],
)
def test_a_broken_thought_is_named(renderer: type[Letters], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_renderer(renderer(), CHAT)


def test_extends_may_not_claim_more_than_a_prefix_even_where_prefixes_break() -> None:
    class Generous(Letters):
        """Strips old thinking, and calls the shorter prompt an extension all the same."""

        def prompt(self, messages: Sequence[Message], tools: Sequence[Any] = ()) -> Any:
            *before, last = messages
            cut = [
                m if m.token_ids is None else Message(
                    m.role, token_ids=m.token_ids[self.thought(m.token_ids) :]
                )
                for m in before
            ]  # fmt: skip
            return super().prompt([*cut, last], tools)

        def extends(self, before: Sequence[int], after: Sequence[int]) -> bool:
            return after[-1] == ord("a")

    with pytest.raises(AssertionError, match="extends says that its prompt extends"):
        check_renderer(Generous(), CHAT, prefix=False)

    class Strips(Generous):
        def extends(self, before: Sequence[int], after: Sequence[int]) -> bool:
            return Letters.extends(self, before, after)

    check_renderer(Strips(), CHAT, prefix=False)
