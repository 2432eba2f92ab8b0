"""Final ids that nothing had shown: the mark of a policy that was taught answers, not steps.

A correction that acts on privileged knowledge succeeds in training. What it teaches is to give an
id without looking it up; where nobody whispers the answer, that becomes an id made up. Rewards and
perplexities look healthy meanwhile, so every run counts such ids; `rti.watch` says when they climb.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rti.types import Message, Rollout


def final_ids(messages: Sequence[Message]) -> list[tuple[str, bool]]:
    """Id-like values of a conversation's last tool call, each with whether it was made up.

    Id-like is a string argument of one word that has a digit in it: k12, #W5918442, 2025-05-16.
    It is made up when no earlier message but the assistant's own holds it as a whole word.
    """
    calls = [i for i, m in enumerate(messages) if m.role == "assistant" and m.tool_calls]
    if not calls:
        return []
    shown = "\n".join(_text(m) for m in messages[: calls[-1]] if m.role != "assistant")
    found = dict.fromkeys(
        value for call in messages[calls[-1]].tool_calls for value in _ids(call.arguments)
    )
    return [(value, not _holds(shown, value)) for value in found]


def made_up_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """`made_up`, the share of final ids that were made up, and `made_up_values`, how many there
    were in all. The share is absent where there was none."""
    made = [flag for rollout in rollouts for _, flag in final_ids(rollout.messages)]
    counted = {"made_up_values": float(len(made))}
    return {"made_up": sum(made) / len(made), **counted} if made else counted


def _text(message: Message) -> str:
    calls = (str(dict(call.arguments)) for call in message.tool_calls)  # a user's own calls
    return "\n".join((message.content, *calls))


def _ids(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        word = value.strip()
        if any(c.isdigit() for c in word) and not re.search(r"\s", word):
            yield word
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _ids(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _ids(inner)


def _holds(text: str, word: str) -> bool:
    """Whether `word` stands in `text` by itself: k1 does not stand in k12."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None
