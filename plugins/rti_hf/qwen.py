"""Qwen3, Qwen3.5 and Qwen3.6, as their own chat templates write them, around sampled ids.

Tested against the templates themselves (tests/data/chat_templates); docs/renderers.md lists where
these renderers differ on purpose.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from attrs import define, field

from rti import Ids, Message, Tool, ToolCall, anything, one_of, option
from rti_hf.rendering.base import CLOSE, END, OPEN, START, ChatRenderer, opens_with_thought
from rti_hf.rendering.calls import (
    hermes_read,
    hermes_tools,
    hermes_write,
    read_calls,
    tags_read,
    tags_tools,
    tags_write,
)
from rti_hf.rendering.encoder import Markup, Piece

_EMPTY = f"{OPEN}\n\n{CLOSE}\n\n"


@define
class _QwenRenderer(ChatRenderer):
    """What the family shares: a thinking block that a stated rule keeps or strips.

    `thinking = "keep"`: every turn stays in the prompt as it was sampled, so each prompt extends
    the last and a rollout is one training sample.
    `thinking = "strip"`: as in the model's own template, turns before the last user message lose
    their thinking block (and with `enable_thinking = false` the empty block that the prompt had
    put in front of them); after each user message the prefix breaks and a rollout is split into
    several samples. The rest of a sampled turn stays as it was sampled.
    """

    needed: ClassVar[tuple[str, ...]] = (START, END, OPEN, CLOSE, "<tool_call>", "</tool_call>")

    enable_thinking: bool = option(
        True, "Let the model think; false: prompts end in an empty thinking block.", anything
    )
    thinking: str = option(
        "keep",
        "Thinking of turns before the last user message: keep it (the prompt prefix holds), or "
        "strip it as the model's template does (rollouts split into several samples there).",
        one_of("keep", "strip"),
    )

    def _opener(self) -> str:
        return "" if self.enable_thinking else _EMPTY

    def _past(self, messages: Sequence[Message], index: int) -> Ids:
        message = messages[index]
        kept = self.thinking == "keep" or index > _last_query(messages)
        ids = message.token_ids
        if ids is None:
            frame = Markup(f"{START}assistant\n"), Markup(END)
            return self._ids(frame[0], *self._written(message, kept), frame[1])
        if kept:
            return self._opening + self._ended(ids)
        return self._ids(Markup(f"{START}assistant\n")) + self._ended(ids[self.thought(ids) :])

    def _written(self, message: Message, kept: bool) -> list[Piece]:
        """A past turn that carries no ids, as the template writes it."""
        raise NotImplementedError


@define
class Qwen3Renderer(_QwenRenderer):
    """Qwen3 (the hybrid models): ChatML, Hermes tool calls, thinking blocks that turns open."""

    name: ClassVar[str] = "qwen3"

    @property
    def empty_thought(self) -> Ids:
        """An empty block: a thinking Qwen3 opens each turn with one. () where the prompt has it."""
        self._check()
        return self._ids(Markup(_EMPTY)) if self.enable_thinking else ()

    def _system(self, text: str, tools: list[Tool]) -> tuple[Piece, ...]:
        if not tools:
            return (text,)
        return (*([text, "\n\n"] if text else []), *hermes_tools(tools))

    def _turn(self, message: Message) -> list[Piece]:
        think = (
            self.enable_thinking or bool(message.reasoning) or opens_with_thought(message.content)
        )
        return self._say(message, think)

    def _written(self, message: Message, kept: bool) -> list[Piece]:
        return self._say(message, kept and bool(message.reasoning))

    def _say(self, message: Message, think: bool) -> list[Piece]:
        calls = hermes_write(message.tool_calls, message.content)
        if not think:
            return [message.content, *calls]
        thought = message.reasoning.strip("\n")
        content = message.content.lstrip("\n")
        return [Markup(f"{OPEN}\n"), thought, Markup(f"\n{CLOSE}\n\n"), content, *calls]

    def _read(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        return read_calls(text, hermes_read)


@define
class Qwen35Renderer(_QwenRenderer):
    """Qwen3.5: tool calls in nested tags, and a thinking block that the prompt opens.

    Arguments come as bare text. Their types are those of the tool schemas that a prompt has shown
    before (the last schema shown counts); without one, see `rti_hf.rendering.values.typed`.
    Models up to 2B do not think by default: set `enable_thinking = false` for them.
    """

    name: ClassVar[str] = "qwen3.5"

    _schemas: dict[str, Mapping[str, Any]] = field(init=False, factory=dict, repr=False)

    def _opener(self) -> str:
        return f"{OPEN}\n" if self.enable_thinking else _EMPTY

    @property
    def empty_thought(self) -> Ids:
        """The end of the block that the prompt opens; () where the prompt closes it too."""
        self._check()
        return self._ids(Markup(f"\n{CLOSE}\n\n")) if self.enable_thinking else ()

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Ids:
        """The prompt for the next turn; the argument types of the tools shown are remembered."""
        for tool in tools:
            if tool.owner == "agent":
                properties = tool.parameters.get("properties", {})
                self._schemas[tool.name] = properties if isinstance(properties, Mapping) else {}
        return super().prompt(messages, tools)

    def _system(self, text: str, tools: list[Tool]) -> tuple[Piece, ...]:
        text = text.strip()
        if not tools:
            return (text,)
        return (*tags_tools(tools), *(["\n\n", text] if text else []))

    def _user(self, text: str) -> str:
        return super()._user(text).strip()

    def _result(self, text: str) -> str:
        return super()._result(text).strip()

    def _turn(self, message: Message) -> list[Piece]:
        thought = message.reasoning.strip()
        said = self._said(message)
        if self.enable_thinking:
            return [thought, Markup(f"\n{CLOSE}\n\n"), *said]
        if thought or opens_with_thought(message.content):
            return [Markup(f"{OPEN}\n"), thought, Markup(f"\n{CLOSE}\n\n"), *said]
        return said

    def _written(self, message: Message, kept: bool) -> list[Piece]:
        if not kept:
            return self._said(message)
        thought = message.reasoning.strip()
        return [Markup(f"{OPEN}\n"), thought, Markup(f"\n{CLOSE}\n\n"), *self._said(message)]

    def _said(self, message: Message) -> list[Piece]:
        content = message.content.strip()
        return [content, *tags_write(message.tool_calls, content, self._value)]

    def _value(self, value: Any) -> str:
        """One argument as text: lists and objects as JSON, the rest as Python writes it."""
        if isinstance(value, Mapping):
            value = dict(value)
        if isinstance(value, (dict, list, tuple)):
            return json.dumps(value, ensure_ascii=False)
        return str(value)

    def _read(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        content, calls = read_calls(
            text, lambda inside, call_id: tags_read(inside, call_id, self._schemas)
        )
        return content.strip(), calls


@define
class Qwen36Renderer(Qwen35Renderer):
    """Qwen3.6: as Qwen3.5, with every argument that is no string written as JSON.

    `thinking = "keep"` is its template's `preserve_thinking = true`.
    """

    name: ClassVar[str] = "qwen3.6"

    def _value(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        return json.dumps(dict(value) if isinstance(value, Mapping) else value, ensure_ascii=False)


def _last_query(messages: Sequence[Message]) -> int:
    """Index of the last user message; without one, that of the last message."""
    return max(
        (i for i, message in enumerate(messages) if message.role == "user"),
        default=len(messages) - 1,
    )
