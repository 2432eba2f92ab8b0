"""The part that every ChatML-like renderer shares: turns, thinking, stops, the prompt's frame."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

from attrs import define, field

from rti import (
    ConfigError,
    Context,
    Ids,
    Message,
    PluginError,
    RunError,
    Tool,
    ToolCall,
    anything,
    model_folder,
    option,
)
from rti_hf.rendering.encoder import Encoder, Markup, Piece

START, END = "<|im_start|>", "<|im_end|>"
OPEN, CLOSE = "<think>", "</think>"
_THOUGHT = re.compile(r"\s*<think>\n?(.*?)(?:\n?</think>(?:\n\n)?|\Z)", re.DOTALL)
_REST_OF_THOUGHT = re.compile(r"(?:\s*<think>\n?)?(.*?)(?:\n?</think>(?:\n\n)?|\Z)", re.DOTALL)
_FENCE = re.compile(r"<(/?tool_response)>")


@define
class ChatRenderer:
    """Blocks of `<|im_start|>role … <|im_end|>`, with thinking and tool calls in the assistant's.

    Text of tools and users can forge neither a token (see `Encoder`) nor the fence around a tool's
    result (`<tool_response>` in it becomes `<\\tool_response>`). Sampled ids stay as they are.

    A family says how it writes: `_system`, `_results`, `_turn`, `_read`, and `_opener` (what stands
    between `<|im_start|>` and the completion), and which turns it renders without their thinking.
    """

    extra: ClassVar[str] = "hf"
    name: ClassVar[str] = "chat"
    needed: ClassVar[tuple[str, ...]] = (START, END)

    tokenizer: str = option("", "Tokenizer folder; empty: that of [model] path.", anything)
    _tokenizer: Any = field(init=False, default=None, repr=False)
    _ids: Encoder = field(init=False, default=None, repr=False)
    _end: int = field(init=False, default=-1, repr=False)
    _opening: Ids = field(init=False, default=(), repr=False)

    def bind(self, context: Context) -> None:
        """Load the tokenizer, from local files alone.

        Raises:
            PluginError: there is no tokenizer at that place, or it lacks the family's tokens.
        """
        from transformers import AutoTokenizer

        place = self._place(context)
        self._tokenizer = AutoTokenizer.from_pretrained(str(place), local_files_only=True)
        self._ids = Encoder(self._tokenizer)
        missing = [token for token in self.needed if token not in self._ids.added]
        if missing:
            self._tokenizer = None
            raise PluginError(
                f"[renderer] {self.name}: the tokenizer in {str(place)!r} has no "
                f"{' or '.join(missing)}: choose another renderer for this model"
            )
        self._end = self._ids.added[END]
        self._opening = self._ids(Markup(f"{START}assistant\n{self._opener()}"))

    def _place(self, context: Context) -> Path:
        path = self.tokenizer or context.model.path
        place = Path(path)
        if not path or (":" in path and not place.exists()):
            try:
                place = model_folder(path)
            except ConfigError as error:
                raise PluginError(f"[renderer] {self.name}: {error}") from error
        if not (place / "tokenizer_config.json").is_file():
            raise PluginError(
                f"[renderer] {self.name}: no tokenizer in {str(place)!r}: set renderer.tokenizer"
                " or model.path to a model folder (`rti smollm2` makes one)"
            )
        return place

    # ------------------------------------------------------------- what a family says

    def _opener(self) -> str:
        """What a prompt holds after `assistant` and a newline."""
        return ""

    def _system(self, text: str, tools: list[Tool]) -> tuple[Piece, ...]:
        """The inside of the first system block; `tools` are the agent's."""
        raise NotImplementedError

    def _turn(self, message: Message) -> list[Piece]:
        """A completion that says `message`, without the end-of-turn token."""
        raise NotImplementedError

    def _read(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Content and calls out of a completion's text behind the thinking."""
        raise NotImplementedError

    def _user(self, text: str) -> str:
        return unfenced(text)

    def _result(self, text: str) -> str:
        return unfenced(text)

    def _result_role(self) -> str:
        return "user"

    def _past(self, messages: Sequence[Message], index: int) -> Ids:
        """The block of an assistant message in a prompt, up to its end-of-turn token."""
        return self._opening + self.turn(messages[index])

    # ------------------------------------------------------------- the interface

    @property
    def stop_ids(self) -> Ids:
        """`<|im_end|>`, and the tokenizer's end-of-sequence token where that is another."""
        self._check()
        eos = self._tokenizer.eos_token_id
        return (self._end,) if eos in (None, self._end) else (self._end, eos)

    @property
    def empty_thought(self) -> Ids:
        """What a completion starts with when the model thinks nothing; () where it may just speak.

        A turn whose thinking has been cut off is whole again with these ids in front.
        """
        return ()

    def encode(self, text: str) -> Ids:
        """Token ids of plain text; what looks like an added token in it stays text."""
        self._check()
        return self._ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens shown."""
        self._check()
        text: str = self._tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Ids:
        """The prompt for the next turn: every message as a block, then an open assistant block.

        Tools of the agent are listed in the first system block (which is made when there is
        none); those of the user are not shown. Results that follow one another share a block.
        """
        self._check()
        shown = [tool for tool in tools if tool.owner == "agent"]
        ids: list[int] = []
        first = 0
        if messages and messages[0].role == "system":
            ids += self._block("system", *self._system(messages[0].content, shown))
            first = 1
        elif shown:
            ids += self._block("system", *self._system("", shown))
        rest = range(first, len(messages))
        for role, group in groupby(rest, key=lambda index: messages[index].role):
            if role == "tool":
                ids += self._results([messages[index].content for index in group])
                continue
            for index in group:
                if role == "assistant":
                    ids += (*self._past(messages, index), *self._ids(Markup("\n")))
                else:
                    text = messages[index].content
                    ids += self._block(role, self._user(text) if role == "user" else text)
        return (*ids, *self._opening)

    def _block(self, role: str, *inner: Piece) -> Ids:
        return self._ids(Markup(f"{START}{role}\n"), *inner, Markup(f"{END}\n"))

    def _results(self, texts: Sequence[str]) -> Ids:
        inner: list[Piece] = []
        for text in texts:
            line = "\n" if inner else ""
            inner += [Markup(f"{line}<tool_response>\n"), self._result(text)]
            inner.append(Markup("\n</tool_response>"))
        return self._block(self._result_role(), *inner)

    def turn(self, message: Message) -> Ids:
        """An assistant message as a completion, with the end-of-turn token.

        Sampled ids are taken verbatim; `<|im_end|>` is added where they ran out of room.
        """
        self._check()
        ids = message.token_ids
        if ids is None:
            ids = self._ids(*self._turn(message))
        return self._ended(ids)

    def _ended(self, ids: Ids) -> Ids:
        return ids if ids and ids[-1] == self._end else (*ids, self._end)

    def parse(self, ids: Sequence[int]) -> Message:
        """A completion as a message. Never raises on odd ids.

        A tool call that is not well formed stays in the content. Thinking that never closes is
        all reasoning: it was not meant to be heard. Calls get the ids "0", "1", … in the order
        in which they stand.
        """
        kept = list(ids)
        while kept and kept[-1] in self.stop_ids:
            kept.pop()
        text = self._shown(kept)
        thought = self._thinking(text)
        reasoning, rest = (thought[1], text[thought.end() :]) if thought else ("", text)
        content, calls = self._read(rest)
        return Message("assistant", content, reasoning, calls, token_ids=tuple(ids))

    def thought(self, ids: Sequence[int]) -> int:
        """How many leading ids of a completion form its thinking block.

        The closing tag and the newlines after it belong to it. 0 when there is no thinking, all
        of them when it never closes.
        """
        text = self._shown(ids)
        thinking = self._thinking(text)
        if thinking is None:
            return 0
        if CLOSE not in text:
            return len(ids)
        ends = range(len(ids) + 1)
        count = bisect_left(ends, True, key=lambda n: CLOSE in self._shown(ids[:n]))
        while count < len(ids) and set(self._shown(ids[count : count + 1])) == {"\n"}:
            count += 1
        return count

    def extends(self, before: Sequence[int], after: Sequence[int]) -> bool:
        """Whether `after` starts with all of `before`."""
        return tuple(after[: len(before)]) == tuple(before)

    # ------------------------------------------------------------- small parts

    def _thinking(self, text: str) -> re.Match[str] | None:
        """The thinking block at the start of a completion; its first group is the thought."""
        inside = self._opener().rfind(OPEN) > self._opener().rfind(CLOSE)
        return (_REST_OF_THOUGHT if inside else _THOUGHT).match(text)

    def _shown(self, ids: Sequence[int]) -> str:
        """Text of ids, those outside of the vocabulary left out."""
        self._check()
        size = len(self._tokenizer)
        return self.decode([i for i in ids if 0 <= i < size])

    def _check(self) -> None:
        if self._tokenizer is None:
            raise RunError(f"[renderer] {self.name} has no tokenizer yet: call bind(context) first")


def unfenced(text: str) -> str:
    """Text in which nothing passes for the fence around a tool's result."""
    return _FENCE.sub(r"<\\\1>", text)


def opens_with_thought(text: str) -> bool:
    """Whether content would be read as thinking: it needs an empty thought in front."""
    return _THOUGHT.match(text) is not None
