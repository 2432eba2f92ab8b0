"""The pocket grammar: messages ↔ words ↔ token ids, over an ordinary tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from attrs import define, field

from rti import Context, Ids, Message, Tool, ToolCall, model_folder, option
from rti.options import anything
from rti_pocket.lessons import observed
from rti_pocket.shortcut_world import VERBS as SHORTCUT_VERBS
from rti_pocket.world import VERBS, read_action

_VERBS = frozenset((*VERBS, *SHORTCUT_VERBS))


@define
class PocketRenderer:
    """Renders pocket conversations: `<s> SYSTEM user : USER agent : TURN <e> env : SEEN <e> …`."""

    extra: ClassVar[str] = "hf"
    tokenizer: str = option("", "Tokenizer folder; empty: that of [model] path.", anything)
    _tokenizer: Any = field(init=False, default=None, repr=False)
    _ids: dict[str, int] = field(init=False, factory=dict, repr=False)
    _end: int = field(init=False, default=-1, repr=False)

    def bind(self, context: Context) -> None:
        """Load the tokenizer."""
        from transformers import AutoTokenizer

        folder = model_folder(self.tokenizer or context.model.path)
        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._end = self._tokenizer.eos_token_id
        self._ids = self._tokenizer.get_vocab()

    @property
    def stop_ids(self) -> Ids:
        """`<e>` ends a turn."""
        return (self._end,)

    def encode(self, text: str) -> Ids:
        """One id a word. What the tokenizer does for a word-level vocabulary, without its toll."""
        unknown = self._tokenizer.unk_token_id
        return tuple(self._ids.get(word, unknown) for word in text.split())

    def decode(self, ids: Sequence[int]) -> str:
        """Words, special ones included."""
        return " ".join(self._tokenizer.convert_ids_to_tokens(list(ids)))

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Ids:
        """The words so far, up to the next turn. Tools stand in the system message already."""
        ids: list[int] = []
        for message in messages:
            if message.role == "system":
                ids += self.encode(f"<s> {message.content}")
            elif message.role == "user":
                ids += self.encode(f"user : {message.content} agent :")
            elif message.role == "tool":
                ids += self.encode(observed(message.content))
            else:
                turn = self.turn(message) if message.token_ids is None else message.token_ids
                ids += turn
                if turn[-1:] != self.stop_ids:
                    ids.append(self._end)
        return tuple(ids)

    def turn(self, message: Message) -> Ids:
        """Content, then the action in words, then `<e>`."""
        words = [message.content]
        for call in message.tool_calls:
            words += [call.name, str(call.arguments.get("value", ""))]
        return self.encode(" ".join(filter(None, words))) + self.stop_ids

    def parse(self, ids: Sequence[int]) -> Message:
        """The action behind the last full stop becomes a tool call, if its verb is one."""
        frozen_ids = tuple(ids)
        words = self.decode(frozen_ids).split()
        action = read_action(words)
        if action is None or action[0] not in _VERBS:
            text = " ".join(w for w in words if w != "<e>")
            return Message("assistant", text, token_ids=frozen_ids)
        verb, value = action
        spoken = len(words) - 1 - len([verb, *value.split()])
        call = ToolCall(verb, {"value": value} if value else {})
        content = " ".join(words[:spoken])
        return Message("assistant", content, tool_calls=(call,), token_ids=frozen_ids)

    def extends(self, before: Sequence[int], after: Sequence[int]) -> bool:
        """Whether `after` starts with all of `before`."""
        return tuple(after[: len(before)]) == tuple(before)
