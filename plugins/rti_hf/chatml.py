"""ChatML with Hermes tool calls: the format of SmolLM2, Qwen2.5, Hermes and their kin.

Written out here instead of asking the tokenizer's own chat template, because templates drop tools
and tool calls silently (SmolLM2's), strip old thinking (Qwen3's), and know no sampled ids.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

from attrs import define, field

from rti import (
    Context,
    Ids,
    Message,
    PluginError,
    RunError,
    Tool,
    ToolCall,
    anything,
    one_of,
    option,
)

START, END = "<|im_start|>", "<|im_end|>"
TOOLS = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
THINKING = re.compile(r"\s*<think>\n?(.*?)(?:\n?</think>(?:\n\n)?|\Z)", re.DOTALL)
CALL = re.compile(r"\n?<tool_call>(.*?)</tool_call>", re.DOTALL)
FENCE = re.compile(r"<(/?tool_response)>")


@define
class ChatMLRenderer:
    """ChatML turns; Hermes tools, calls and results. Sampled ids stay as they are.

    Text of tools and users can forge neither a special token (they are encoded as plain text)
    nor the fence around a tool's result (`<tool_response>` in it becomes `<\\tool_response>`).
    """

    extra: ClassVar[str] = "hf"

    tokenizer: str = option("", "Tokenizer folder; empty: the model's own.", anything)
    tool_role: str = option(
        "user", "Role of the block that holds tool results (Qwen: user).", one_of("user", "tool")
    )
    _tokenizer: Any = field(init=False, default=None, repr=False)
    _text: Callable[[str], Ids] = field(init=False, default=None, repr=False)
    _start: int = field(init=False, default=-1, repr=False)
    _end: int = field(init=False, default=-1, repr=False)

    def bind(self, context: Context) -> None:
        """Load the tokenizer, from local files alone.

        Raises:
            PluginError: there is no tokenizer at that place, or it has no ChatML tokens.
        """
        from transformers import AutoTokenizer

        place = Path(self.tokenizer or context.model.path)
        if not (place / "tokenizer_config.json").is_file():
            raise PluginError(
                f"[renderer] chatml: no tokenizer in {str(place)!r}: set renderer.tokenizer or"
                " model.path to a model folder (`rti smollm2` makes one)"
            )
        self._tokenizer = AutoTokenizer.from_pretrained(str(place), local_files_only=True)
        vocabulary = self._tokenizer.get_added_vocab()
        missing = [token for token in (START, END) if token not in vocabulary]
        if missing:
            raise PluginError(
                f"[renderer] chatml: the tokenizer in {str(place)!r} has no {' or '.join(missing)}:"
                " choose another renderer for this model"
            )
        self._start, self._end = vocabulary[START], vocabulary[END]
        # Every prompt repeats the system text and the messages before it.
        self._text = lru_cache(maxsize=4096)(self._encode)

    def _encode(self, text: str) -> Ids:
        return tuple(
            self._tokenizer.encode(
                text, add_special_tokens=False, split_special_tokens=True, verbose=False
            )
        )

    @property
    def stop_ids(self) -> Ids:
        """`<|im_end|>`, and the tokenizer's end-of-sequence token where that is another."""
        self._check()
        eos = self._tokenizer.eos_token_id
        return (self._end,) if eos in (None, self._end) else (self._end, eos)

    def encode(self, text: str) -> Ids:
        """Token ids of plain text; what looks like a special token in it stays text."""
        self._check()
        return self._text(text)

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
        listing = _listing(tools)
        ids: list[int] = []
        if listing and not (messages and messages[0].role == "system"):
            ids += self._block("system", listing)
        for i, (role, text_or_turn) in enumerate(self._blocks(messages)):
            if isinstance(text_or_turn, Message):
                ids += (self._start, *self._text("assistant\n"), *self.turn(text_or_turn))
                ids += self._text("\n")
                continue
            text = text_or_turn
            if i == 0 and role == "system" and listing:
                text = f"{text}\n\n{listing}" if text else listing
            ids += self._block(role, text)
        return (*ids, self._start, *self._text("assistant\n"))

    def _blocks(self, messages: Sequence[Message]) -> Iterator[tuple[str, str | Message]]:
        for role, group in groupby(messages, key=lambda message: message.role):
            if role == "tool":
                yield self.tool_role, "\n".join(_result(message) for message in group)
                continue
            for message in group:
                if role == "assistant":
                    yield role, message
                else:
                    yield role, _unfenced(message.content) if role == "user" else message.content

    def _block(self, role: str, text: str) -> list[int]:
        inner = self._text(f"{role}\n{text}")
        return [self._start, *inner, self._end, *self._text("\n")]

    def turn(self, message: Message) -> Ids:
        """An assistant message as a completion, with the end-of-turn token.

        Sampled ids are taken verbatim; `<|im_end|>` is added where they ran out of room.
        """
        self._check()
        ids = message.token_ids
        if ids is None:
            ids = self._text(_write(message))
        return ids if ids and ids[-1] == self._end else (*ids, self._end)

    def parse(self, ids: Sequence[int]) -> Message:
        """A completion as a message. Never raises on odd ids.

        A tool call that is not a JSON object with a name and an object of arguments stays in the
        content. Thinking that never closes is all reasoning: it was not meant to be heard.
        Calls get the ids "0", "1", … in the order in which they stand.
        """
        self._check()
        kept = list(ids)
        while kept and kept[-1] in self.stop_ids:
            kept.pop()
        size = len(self._tokenizer)
        text = self.decode([i for i in kept if 0 <= i < size])
        reasoning = ""
        thinking = THINKING.match(text)
        if thinking:
            reasoning, text = thinking[1], text[thinking.end() :]
        calls: list[ToolCall] = []

        def take(found: re.Match[str]) -> str:
            call = _read_call(found[1], str(len(calls)))
            if call is None:
                return found[0]
            calls.append(call)
            return ""

        content = CALL.sub(take, text)
        return Message("assistant", content, reasoning, tuple(calls), token_ids=tuple(ids))

    def extends(self, before: Sequence[int], after: Sequence[int]) -> bool:
        """Whether `after` starts with all of `before`."""
        return tuple(after[: len(before)]) == tuple(before)

    def _check(self) -> None:
        if self._tokenizer is None:
            raise RunError("[renderer] chatml has no tokenizer yet: call bind(context) first")


def _listing(tools: Sequence[Tool]) -> str:
    lines = [
        json.dumps(
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            },
            ensure_ascii=False,
        )
        for tool in tools
        if tool.owner == "agent"
    ]
    return TOOLS.format(tools="\n".join(lines)) if lines else ""


def _result(message: Message) -> str:
    return f"<tool_response>\n{_unfenced(message.content)}\n</tool_response>"


def _unfenced(text: str) -> str:
    return FENCE.sub(r"<\\\1>", text)


def _write(message: Message) -> str:
    """The text of an assistant message; `ChatMLRenderer.parse` reads it back."""
    text = message.content
    if message.reasoning or THINKING.match(text):
        # Content that itself opens with <think> needs an empty thought in front to stay content.
        text = f"<think>\n{message.reasoning}\n</think>\n\n{text}"
    for call in message.tool_calls:
        body = {"name": call.name, "arguments": dict(call.arguments)}
        written = json.dumps(body, ensure_ascii=False)
        text += ("\n" if text else "") + f"<tool_call>\n{written}\n</tool_call>"
    return text


def _read_call(text: str, call_id: str) -> ToolCall | None:
    try:
        call = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        # Unpaired surrogates are legal JSON, but no tool, tokenizer or file can take them.
        json.dumps(call, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    return ToolCall(call["name"], arguments, call_id) if isinstance(arguments, dict) else None


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not finite")
    return number
