"""A language model as the customer, at an OpenAI-compatible endpoint.

Guidelines, scenario and the turned-about history are those of tau2's own user simulator, so that
results compare with others of τ²-bench that name the same model. What it said is kept: a fork says
it again instead of asking once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from attrs import define, field, frozen

from rti import ConfigError, InfrastructureError, RunError
from rti_tau2.customer import NOTHING_HEARD, UseAll, heard

T = TypeVar("T")

MOST_CALLS = 20
"""Tool calls in one answer after which the model is taken to be stuck."""

SILENCE = "(no words)"


@frozen
class Move:
    """One answer of the model: words for the agent, or tool calls (with words, for nobody)."""

    words: str | None
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()


@define
class Usage:
    """What was asked of the endpoint since the program began: counters that only grow."""

    requests: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0
    faults: int = 0


@define(eq=False)
class UserModel:
    """The endpoint. It is asked from threads, which belong to no event loop."""

    model: str
    base_url: str
    key_env: str
    temperature: float
    timeout_s: float
    retries: int
    concurrency: int
    most_requests: int = 0
    used: Usage = field(init=False, factory=Usage)
    _client: Any = field(init=False, default=None, repr=False)
    _slots: tuple[Any, asyncio.Semaphore] | None = field(init=False, default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        self.base_url = (self.base_url or os.environ.get("OPENAI_BASE_URL", "")).rstrip("/")
        if not self.model:
            raise ConfigError(
                "[environment] tau2: user = 'endpoint' needs user_model, the customer's model by "
                "the name that its endpoint knows it by."
            )
        if not self.base_url:
            raise ConfigError(
                "[environment] tau2: user_base_url is not given, and OPENAI_BASE_URL is not set: "
                "name the customer's endpoint, as in http://127.0.0.1:8000/v1."
            )
        parts = urlsplit(self.base_url)
        known = parts.scheme in ("http", "https") and parts.hostname
        if not known or "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(
                "[environment] tau2: user_base_url must be an address as in "
                "http://127.0.0.1:8000/v1, without a user name, a password or a '?'. A key comes "
                "from the environment variable that user_key_env names."
            )

    def _connected(self) -> Any:
        if self._client is not None:
            return self._client
        import openai

        self._client = openai.OpenAI(
            api_key=self._key or "none",
            base_url=self.base_url,
            timeout=self.timeout_s,
            max_retries=0,  # tries are counted here
            # A proxy named by the environment has no way to this machine's own loopback.
            http_client=openai.DefaultHttpxClient(trust_env=False) if self._local else None,
        )
        return self._client

    @property
    def _local(self) -> bool:
        return urlsplit(self.base_url).hostname in ("localhost", "127.0.0.1", "::1")

    @property
    def _key(self) -> str:
        return os.environ.get(self.key_env, "").strip()

    @property
    def about_the_key(self) -> tuple[str, str]:
        """Where it comes from, as a finding (level, text)."""
        if not self._key:
            level = "ok" if self._local else "warning"
            return level, f"customer at {self.base_url}: no key, {self.key_env} is not set"
        if self.base_url.startswith("http:") and not self._local:
            return (
                "warning",
                f"customer at {self.base_url}: the key goes out unencrypted, use https",
            )
        return "ok", f"customer at {self.base_url}: the key comes from {self.key_env}"

    async def ask(self, messages: Sequence[Any], tools: Sequence[Any] | None) -> Move:
        """The next thing that the model does.

        Raises:
            InfrastructureError: none came, in all tries. The key is never shown.
            RunError: the endpoint takes no such key, or has no such model: none ever will. Or it
                was asked as often as it may be.
        """
        import openai

        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "temperature": self.temperature,
        }
        if tools:
            body["tools"] = [tool.openai_schema for tool in tools]
        why = ""
        for attempt in range(self.retries + 1):
            if attempt:
                await asyncio.sleep(min(2.0**attempt, 30.0) * random.uniform(0.5, 1.0))
            try:
                async with self._slot():
                    return await self._once(body)
            except RunError:
                raise
            except (
                openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError
            ) as error:  # fmt: skip
                self.used.faults += 1
                raise RunError(
                    f"The customer's model {self.model!r} at {self.base_url} refuses "
                    f"({self._words(error)}): check [environment] user_model and user_base_url, "
                    f"and the key in the environment variable {self.key_env} (user_key_env)."
                ) from None
            except openai.BadRequestError as error:  # no further try will mend it
                self.used.faults += 1
                raise InfrastructureError(
                    f"The customer's model {self.model!r} at {self.base_url} takes no such request "
                    f"({self._words(error)}): is the conversation too long for it, or [environment]"
                    f" user_temperature = {self.temperature:g} not allowed?"
                ) from None
            except Exception as error:  # of the client, the endpoint, or what it sent
                self.used.faults += 1
                why = self._words(error)
        raise InfrastructureError(
            f"The customer's model {self.model!r} at {self.base_url} gave no answer ({why}). It was"
            f" asked {self.retries + 1} times ([environment] user_timeout_s = {self.timeout_s:g}, "
            f"user_retries = {self.retries}). Is user_base_url right?"
        )

    def _words(self, error: Exception) -> str:
        why = f"{type(error).__name__}: {error}"
        return " ".join((why.replace(self._key, "***") if self._key else why)[:300].split())

    def _slot(self) -> asyncio.Semaphore:
        """Places to ask from, of the running loop: those of another one are of no use."""
        loop = asyncio.get_running_loop()
        if self._slots is None or self._slots[0] is not loop:
            self._slots = loop, asyncio.Semaphore(self.concurrency)
        return self._slots[1]

    async def _once(self, body: dict[str, Any]) -> Move:
        """One request. It is counted before it is sent, its tokens whatever the answer is worth."""
        if self.most_requests and self.used.requests >= self.most_requests:
            raise RunError(
                f"The customer's model {self.model!r} was asked {self.used.requests} times, as "
                "often as [environment] user_max_requests allows. Raise it and go on: what was "
                "finished is kept, and the count begins anew."
            )
        self.used.requests += 1
        client = self._connected()
        reply = await in_thread(lambda: client.chat.completions.create(**body))
        self.used.prompt_tokens += _told(reply, "prompt_tokens")
        self.used.reply_tokens += _told(reply, "completion_tokens")
        said = reply.choices[0].message
        if said.tool_calls:
            return Move(said.content, tuple(_call(made.function) for made in said.tool_calls))
        if not (said.content or "").strip():
            raise ValueError("an answer without words")
        return Move(said.content)


def _told(reply: Any, name: str) -> int:
    """A count of tokens; 0 where the endpoint tells none."""
    count = getattr(getattr(reply, "usage", None), name, 0)
    return count if isinstance(count, int) and count > 0 else 0


def _call(function: Any) -> tuple[str, dict[str, Any]]:
    arguments = json.loads(function.arguments or "{}")
    if not isinstance(arguments, dict):
        raise ValueError(f"arguments of {function.name} that are no object")
    return function.name, arguments


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns, from a thread that nobody waits for once this is cancelled.

    The threads of an executor would be waited for when the process ends.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="tau2-customer", daemon=True).start()
    return await done


@define(eq=False)
class EndpointCustomer:
    """A customer played by a model. `recall` holds the answers to be given once more."""

    endpoint: UserModel
    simulator: Any = field(repr=False)
    recall: tuple[tuple[Move, ...], ...] = ()
    _given: list[tuple[Move, ...]] = field(init=False, factory=list)

    async def opening(self, log: Sequence[Any], use: UseAll) -> str:
        """What it says to tau2's greeting, the last of `log`."""
        return await self._answer(log, use)

    async def answer(self, log: Sequence[Any], use: UseAll) -> str:
        """What it says to the agent's words, the last of `log`."""
        if not heard(log[-1].content or ""):
            # Endpoints may refuse a message without words; nothing is to be said to it anyway.
            self._given.append((Move(NOTHING_HEARD),))
            return NOTHING_HEARD
        return await self._answer(log, use)

    def state(self) -> tuple[Any, ...]:
        """Nothing: all it knows stands in the log."""
        return ()

    def again(self, answers: int) -> EndpointCustomer:
        """One that gives the opening and so many answers once more, and then asks the model."""
        return EndpointCustomer(self.endpoint, self.simulator, tuple(self._given[: answers + 1]))

    async def _answer(self, log: Sequence[Any], use: UseAll) -> str:
        known = self.recall[len(self._given) : len(self._given) + 1]
        moves = [move for answer in known for move in answer]
        for move in moves:
            if move.calls:
                use(move.calls, move.words)
        while not moves or moves[-1].calls:
            if sum(len(move.calls) for move in moves) >= MOST_CALLS:
                raise InfrastructureError(
                    f"The customer's model {self.endpoint.model!r} made {MOST_CALLS} tool calls "
                    "and said nothing."
                )
            moves.append(await self._next(log))
            if moves[-1].calls:
                use(moves[-1].calls, moves[-1].words)
        self._given.append(tuple(moves))
        return moves[-1].words or ""

    async def _next(self, log: Sequence[Any]) -> Move:
        from tau2.user.base import is_valid_user_history_message
        from tau2.utils.llm_utils import to_litellm_messages

        heard = [message for message in log if is_valid_user_history_message(message)]
        state = self.simulator.get_init_state(heard)
        messages = to_litellm_messages([*state.system_messages, *state.flip_roles()])
        return await self.endpoint.ask(
            [_plain(message) for message in messages], self.simulator.tools
        )


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """As the protocol has it: no empty list of calls, and no name beside a call's function.

    An agent's turn without words gets some: endpoints may refuse it.
    """
    if not message.get("tool_calls"):
        kept = {k: v for k, v in message.items() if k in {"role", "content", "tool_call_id"}}
        return {**kept, "content": kept["content"] or SILENCE}
    calls = [{k: made[k] for k in ("id", "type", "function")} for made in message["tool_calls"]]
    return {**message, "tool_calls": calls}


def customers(endpoint: UserModel, task: Any, tools: Any) -> Callable[[], EndpointCustomer]:
    """Makes customers for the sessions of one task, with the customer's tools or None."""
    from tau2.user.user_simulator import UserSimulator

    simulator = UserSimulator(tools=tools, instructions=str(task.user_scenario))
    return lambda: EndpointCustomer(endpoint, simulator)
