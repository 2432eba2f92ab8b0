"""A chat model behind an OpenAI-compatible endpoint as the policy itself: to be evaluated, no more.

It knows messages and tool calls, no token ids and no logprobs, so nothing here can be trained on.
Who it is, its key, its tries and its budget come from `[teacher]`, as for a teacher's roles.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from attrs import define, evolve, field

from rti import (
    Completion,
    ConfigError,
    Context,
    Floats,
    Ids,
    Message,
    RequestKey,
    SamplingParams,
    Spoken,
    Tool,
    ToolCall,
    anything,
    option,
)
from rti.roles import without_thought
from rti_teacher.budget import Tokens
from rti_teacher.endpoint import Ask, Endpoint, TooLong
from rti_teacher.transport import CHAT
from rti_teacher.wire import Reply, broken_up, offered

ONLY = "it can only be evaluated, by `rti eval`"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
UNANSWERED = "(no result)"
"""Stands for the result of a call that the environment gave none: endpoints want one for each."""


@define(eq=False)
class ChatPolicy:
    """A chat model with tools behind an OpenAI-compatible endpoint; for evaluation alone."""

    extra: ClassVar[str] = "teacher"

    model: str = option("", "The model's name there; empty: [teacher] model.", anything)
    base_url: str = option("", "Where it is; empty: [teacher] base_url.", anything)
    key_env: str = option(
        "", "Environment variable that holds its key; empty: [teacher] key_env.", anything
    )
    _endpoint: Endpoint = field(init=False, default=None, repr=False)
    _named: str = field(init=False, default="")
    _at_once: int = field(init=False, default=1)

    def bind(self, context: Context) -> None:
        """Find the endpoint."""
        import openai  # noqa: F401 - a missing extra is to be told now, not at the first request

        self._endpoint = Endpoint.shared(context, self.base_url, self.key_env)
        self._endpoint.who, self._endpoint.patient = "The model", True
        self._named = self.model or (context.teacher.model if context.teacher else "")
        self._at_once = self._endpoint.transport.config.concurrency

    async def ready(self) -> None:
        """Find out which model it is, where only the endpoint knows.

        Raises:
            RunError: when it serves none, or several.
            InfrastructureError: when it does not answer.
        """
        self._named = await self._endpoint.model(self._named)

    @property
    def version(self) -> int:
        """Always 0: nothing updates it."""
        return 0

    @property
    def usage(self) -> Mapping[str, float]:
        """Requests and tokens, by the endpoint's own count."""
        counts = self._endpoint.budget.usage
        return {
            "sampled_tokens": counts["teacher/reply_tokens"],
            "scored_tokens": 0.0,
            **{name.removeprefix("teacher/"): value for name, value in counts.items()},
        }

    @property
    def identity(self) -> Mapping[str, str]:
        """Which model it is."""
        return {"model": self._named, "base_url": self._endpoint.url}

    @property
    def spent(self) -> str:
        """Why it can be asked no more, or ""."""
        return self._endpoint.budget.spent

    @property
    def notes(self) -> Sequence[str]:
        """What the endpoint turned out not to understand."""
        return tuple(self._endpoint.budget.notes)

    def describe(self) -> str:
        """The model and where it is."""
        return f"{self._named} at {self._endpoint.url}"

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        params: SamplingParams,
        key: RequestKey,
    ) -> Spoken | None:
        """The model's next message; None when the conversation has become too long for it.

        Raises:
            InfrastructureError: it gave no answer, or the budget is spent.
            RunError: a key, a model or tools that the endpoint will never take.
        """
        own = {tool.name: tool for tool in tools if tool.owner == "agent"}
        names = sendable(list(own))
        body: dict[str, Any] = {
            "messages": conversation(messages, names),
            "temperature": params.temperature,
            "top_p": params.top_p,
        }
        if own:
            body["tools"] = offered([evolve(t, name=names[name]) for name, t in own.items()])
        asked = Ask(
            CHAT, body, Tokens(_most(body), params.max_new_tokens), key.seed64(), needs=("tools",)
        )
        try:
            answer = await self._endpoint.ask(asked, self._named)
        except TooLong:
            return None
        return spoken(answer, {sent: name for name, sent in names.items()})

    async def gather(self, coroutines: Sequence[Awaitable[Any]]) -> list[Any]:
        """Run so many episodes at once as requests may be; an error keeps further ones from it."""
        slots = asyncio.Semaphore(self._at_once)
        error: BaseException | None = None

        async def one(work: Awaitable[Any]) -> Any:
            nonlocal error
            async with slots:
                if error is not None:
                    return None
                try:
                    return await work
                except BaseException as raised:
                    error = error or raised
                    raise

        try:
            results = await asyncio.gather(*map(one, coroutines), return_exceptions=True)
        finally:
            for work in coroutines:
                if inspect.iscoroutine(work):
                    work.close()  # one that never began would complain
        if error is not None:
            raise error
        return results

    async def sample(
        self, prompts: Sequence[Ids], params: SamplingParams, keys: Sequence[RequestKey], stop: Ids
    ) -> list[Completion]:
        """Not of this policy: it has no tokens."""
        raise ConfigError(f"[policy] chat has no tokens to sample: {ONLY}.")

    async def score(
        self, prompts: Sequence[Ids], completions: Sequence[Ids], version: int
    ) -> list[Floats]:
        """Not of this policy: it has no logprobs."""
        raise ConfigError(f"[policy] chat has no logprobs: {ONLY}.")

    async def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Not of this policy: it takes no weights."""
        raise ConfigError(f"[policy] chat takes no weights: {ONLY}.")

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.transport.close()


def sendable(names: Sequence[str]) -> dict[str, str]:
    """Tools' names as endpoints take them: letters, digits, '_' and '-', each still its own."""
    found: dict[str, str] = {}
    taken = {name for name in names if _NAME.fullmatch(name)}
    for name in names:
        plain = base = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:56] or "_"
        number = 2
        while plain in taken and plain != name:
            plain, number = f"{base}_{number}", number + 1
        found[name] = name if _NAME.fullmatch(name) else plain
        taken.add(found[name])
    return found


def conversation(
    messages: Sequence[Message], names: Mapping[str, str] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Messages as an endpoint takes them: each tool call with an id of its own, and answered.

    A tool's word that answers no call goes out as the user's. `names` are those that tools have
    there; one that it does not hold was made up by the model, and goes out as it would take it.
    """
    sent: list[dict[str, Any]] = []
    open_calls: dict[str, str] = {}

    def answer_the_rest() -> None:
        for call in open_calls.values():
            sent.append({"role": "tool", "tool_call_id": call, "content": UNANSWERED})
        open_calls.clear()

    for place, message in enumerate(messages):
        text = broken_up(message.content)
        if message.role == "tool" and message.tool_call_id in open_calls:
            call = open_calls.pop(message.tool_call_id)
            sent.append({"role": "tool", "tool_call_id": call, "content": text})
            continue
        answer_the_rest()
        if message.role == "tool":
            sent.append({"role": "user", "content": text})
        elif message.role == "assistant" and message.tool_calls:
            open_calls.update({c.id: f"call_{place}_{c.id}" for c in message.tool_calls})
            calls = [_sent_call(c, open_calls[c.id], names) for c in message.tool_calls]
            sent.append({"role": "assistant", "content": text or None, "tool_calls": calls})
        else:
            sent.append({"role": message.role, "content": text})
    answer_the_rest()
    return sent


def spoken(reply: Reply, names: Mapping[str, str] = MappingProxyType({})) -> Spoken:
    """A reply as a turn. Where arguments of a call are no JSON object nothing of it is executed.

    `names` leads from the names of tools there to those here.
    """
    calls: list[ToolCall] = []
    wrong: dict[int, str] = {}
    for place, (name, text) in enumerate(reply.calls):
        arguments, why = _arguments(text)
        calls.append(ToolCall(names.get(name, name), arguments, str(place)))
        if why:
            wrong[place] = f"Error: the arguments of {name} are {why}: {text[:200]}"
    message = Message("assistant", without_thought(reply.text).strip(), tool_calls=tuple(calls))
    refused = [
        Message(
            "tool",
            wrong.get(place, "Error: not executed, because of another call in this message."),
            tool_call_id=call.id,
            error=True,
        )
        for place, call in enumerate(calls)
        if wrong
    ]
    return Spoken(message, "length" if reply.finish == "length" else "stop", tuple(refused))


def _arguments(text: str) -> tuple[dict[str, Any], str]:
    """What a call is given, or why that cannot be read."""
    try:
        found = json.loads(text)
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode()  # no NaN, no half signs
    except (ValueError, RecursionError):
        return {}, "no JSON"
    return (found, "") if isinstance(found, dict) else ({}, "no JSON object")


def _sent_call(call: ToolCall, id_: str, names: Mapping[str, str]) -> dict[str, Any]:
    name = names.get(call.name) or sendable([call.name])[call.name]
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def _most(body: Mapping[str, Any]) -> int:
    """Tokens that a prompt may take, cautiously: its tokenizer is not known here."""
    return math.ceil(sum(len(text.encode("utf-8", "replace")) for text in _texts(body)) / 3)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    else:
        yield str(value)
