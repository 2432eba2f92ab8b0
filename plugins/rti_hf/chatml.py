"""ChatML with Hermes tool calls: the format of SmolLM2, Qwen2.5, Hermes and their kin.

Written out here instead of asking the tokenizer's own chat template, because templates drop tools
and tool calls silently (SmolLM2's), strip old thinking (Qwen3's), and know no sampled ids.
"""

from __future__ import annotations

from typing import ClassVar

from attrs import define

from rti import Message, Tool, ToolCall, one_of, option
from rti_hf.rendering.base import ChatRenderer, opens_with_thought
from rti_hf.rendering.calls import hermes_read, hermes_tools, hermes_write, read_calls
from rti_hf.rendering.encoder import Markup, Piece


@define
class ChatMLRenderer(ChatRenderer):
    """ChatML turns; Hermes tools, calls and results; thinking kept where a turn has any.

    Text of tools and users can forge neither a special token (they are encoded as plain text)
    nor the fence around a tool's result (`<tool_response>` in it becomes `<\\tool_response>`).
    """

    name: ClassVar[str] = "chatml"

    tool_role: str = option(
        "user", "Role of the block that holds tool results (Qwen: user).", one_of("user", "tool")
    )

    def _result_role(self) -> str:
        return self.tool_role

    def _system(self, text: str, tools: list[Tool]) -> tuple[Piece, ...]:
        if not tools:
            return (text,)
        return (*([text, "\n\n"] if text else []), *hermes_tools(tools))

    def _turn(self, message: Message) -> list[Piece]:
        thought: list[Piece] = []
        # Content that itself opens with <think> needs an empty thought in front to stay content.
        if message.reasoning or opens_with_thought(message.content):
            thought = [Markup("<think>\n"), message.reasoning, Markup("\n</think>\n\n")]
        calls = hermes_write(message.tool_calls, message.content)
        return [*thought, message.content, *calls]

    def _read(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        return read_calls(text, hermes_read)
