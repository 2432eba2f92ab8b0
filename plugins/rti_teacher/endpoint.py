"""One OpenAI-compatible endpoint: who may ask, how often, and when to leave it alone.

Time is bounded: every try ends within `timeout_s`, and so does every pause between two. When a
request has failed in all its tries, the endpoint is left alone for `timeout_s`; until it answers
again each request has one try. So a dead teacher costs a step minutes, never hours.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from attrs import define, field, frozen

from rti import Context, InfrastructureError, RunError
from rti.config import TeacherConfig
from rti_teacher.budget import FILE, Budget, Tokens
from rti_teacher.dialect import Dialect
from rti_teacher.faults import Fault, pause
from rti_teacher.transport import CHAT, Transport, checked_address, key_of
from rti_teacher.wire import Reply, read_chat, read_completion

MOST_ADAPTED = 10
"""Most times that one request is sent again without an option: there are no more options."""

_budgets: WeakValueDictionary[int, Budget] = WeakValueDictionary()
_endpoints: WeakValueDictionary[tuple[int, str, str], Endpoint] = WeakValueDictionary()


@frozen
class Ask:
    """One request: `body` holds its messages or its prompt, and tools.

    `without_tools` takes its place at an endpoint that refuses tools; what stands in `needs` is
    never left out.
    """

    path: str
    body: Mapping[str, Any] = field(repr=False)
    tokens: Tokens
    seed: int | None = None
    schema: str = ""
    without_tools: Mapping[str, Any] | None = field(default=None, repr=False)
    needs: tuple[str, ...] = ()


class TooLong(InfrastructureError):
    """The prompt does not fit into the model's context."""


@define(eq=False)
class Endpoint:
    """An endpoint and its budget, shared by all roles of a run that use it.

    `who` begins its errors. A patient one waits while it is left alone, and never tries less often:
    for work that has nothing else to do meanwhile.
    """

    transport: Transport
    key_env: str
    budget: Budget
    dialect: Dialect = field(factory=Dialect)
    who: str = "The teacher"
    patient: bool = False
    report: dict[Any, Any] = field(factory=dict, repr=False)
    """What checks have found out, kept so that the roles of a run do not ask it again."""
    _only: str = field(init=False, default="")
    _served: set[tuple[str, str]] = field(init=False, factory=set)
    _down: str = field(init=False, default="")
    _alone_until: float = field(init=False, default=0.0)

    @classmethod
    def shared(cls, context: Context, base_url: str = "", key_env: str = "") -> Endpoint:
        """The endpoint of this run at this address: the same one for each role that asks.

        Raises:
            ConfigError: for an address or a key that cannot be used.
        """
        config = context.teacher or TeacherConfig()
        url = checked_address(base_url or config.base_url or os.environ.get("OPENAI_BASE_URL", ""))
        env = key_env or config.key_env
        place = (id(context), url, env)
        found = _endpoints.get(place)
        if found is None:
            budget = _budgets.get(id(context))
            if budget is None:
                out = context.out / FILE if context.out is not None else None
                budget = _budgets[id(context)] = Budget(config, out, context)
            transport = Transport(url, key_of(env), config)
            found = _endpoints[place] = cls(transport, env, budget)
        return found

    @property
    def url(self) -> str:
        """Where it is."""
        return self.transport.url

    @property
    def _config(self) -> TeacherConfig:
        return self.transport.config

    async def ask(self, asked: Ask, model: str, tries: int = 0) -> Reply:
        """One answer. `tries` bounds the tries of this request; 0: as `retries` says.

        Raises:
            InfrastructureError: no answer, in all tries; a spent budget; a prompt too long for it.
            RunError: a key or a request that it will never take.
        """
        failed = adapted = 0
        most = 1 if self._down and not self.patient else tries or self._config.retries + 1
        while True:
            plain = self.dialect.lacks(asked.path, model, "tools") and asked.without_tools
            sent = self.dialect.body(
                asked.path, model, plain or asked.body, asked.seed, asked.schema,
                asked.tokens.reply,
            )  # fmt: skip
            outcome = await self._try(asked, model, sent)
            if isinstance(outcome, Reply):
                return outcome
            changed = self.dialect.adapt(asked.path, model, sent, outcome, asked.needs)
            if changed and adapted < MOST_ADAPTED:
                adapted += 1
                self.note(f"{self.who} at {self.url} {changed}.")
                continue
            failed += 1
            self._raise_unless_passing(outcome, model, asked.path)
            if failed >= most:
                self._down = outcome.what
                self._alone_until = time.monotonic() + self._config.timeout_s
                self.budget.used.faults += 1
                raise InfrastructureError(self._words(outcome.what, failed))
            self.budget.used.retries += 1
            await asyncio.sleep(pause(failed, outcome.retry_after, self._config.timeout_s))

    async def model(self, name: str) -> str:
        """The model to ask for: the name given, or that of the only one served.

        Raises:
            RunError: when it serves none, or several, or does not say.
            InfrastructureError: when it does not answer.
        """
        if name:
            return name
        async with self.transport.here().naming:
            if not self._only:
                served = await self.models()
                if len(served) != 1:
                    listed = ", ".join(served[:10]) or "none that it names"
                    raise RunError(
                        f"{self.who} at {self.url} serves {listed}: say which is meant, with "
                        "[teacher] model."
                    )
                self._only = served[0]
        return self._only

    async def models(self, tries: int = 0) -> list[str]:
        """The models that it says it serves. Raises as `ask`; not a request of the budget."""
        failed = 0
        most = 1 if self._down and not self.patient else tries or self._config.retries + 1
        while True:
            await self._while_left_alone()
            outcome = await self.transport.models()
            if not isinstance(outcome, Fault):
                return outcome
            failed += 1
            self._raise_unless_passing(outcome, "", "models")
            if failed >= most:
                self._down = outcome.what
                self._alone_until = time.monotonic() + self._config.timeout_s
                raise InfrastructureError(self._words(outcome.what, failed))
            await asyncio.sleep(pause(failed, outcome.retry_after, self._config.timeout_s))

    def note(self, text: str) -> None:
        """Keep something to be said: the step's words say it once."""
        if text not in self.budget.notes:
            self.budget.notes.append(text)
            self.budget.save()

    async def _try(self, asked: Ask, model: str, sent: dict[str, Any]) -> Reply | Fault:
        read = read_chat if asked.path == CHAT else read_completion
        async with self.transport.here().slots:
            await self._while_left_alone()
            await self.budget.reserve(asked.tokens)
            took: Tokens | None = None
            try:
                outcome: Reply | Fault = await self.transport.post(asked.path, sent, read)
                if isinstance(outcome, Fault):
                    took = None if outcome.cost_unknown else Tokens()
                else:
                    took = self._took(asked, outcome)
                    self._down, self._alone_until = "", 0.0
                    self._served.add((asked.path, model))
                return outcome
            finally:  # cancelled too: then it counts in full
                self.budget.settle(asked.tokens, took)

    def _took(self, asked: Ask, reply: Reply) -> Tokens:
        """What a request took, by the endpoint's own count; where it tells none, all set aside."""
        prompt, said = reply.prompt_tokens, reply.reply_tokens
        self.budget.used.estimated += prompt is None or said is None
        return Tokens(
            asked.tokens.prompt if prompt is None else prompt,
            asked.tokens.reply if said is None else said,
        )

    async def _while_left_alone(self) -> None:
        while (left := self._alone_until - time.monotonic()) > 0:
            if self.patient:
                await asyncio.sleep(left)
                continue
            raise InfrastructureError(
                f"{self.who} at {self.url} {self._down}; it is left alone for "
                f"{self._config.timeout_s:g} s after that ([teacher] timeout_s)."
            )

    def _words(self, what: str, tries: int) -> str:
        times = "once" if tries == 1 else f"{tries} times"
        return (
            f"{self.who} at {self.url} {what}. It was asked {times} "
            f"([teacher] timeout_s = {self._config.timeout_s:g}, "
            f"retries = {self._config.retries})."
        )

    def _raise_unless_passing(self, fault: Fault, model: str, path: str) -> None:
        """What no further try will mend ends the request, or the run."""
        if fault.kind == "passing":
            return
        if fault.kind == "denied":
            held = "holds a key that it does not take" if self.transport.key else "is not set"
            raise RunError(
                f"{self.who} at {self.url} {fault.what}. The environment variable "
                f"{self.key_env} ([teacher] key_env) {held}."
            )
        if fault.kind == "prompt":
            self.budget.used.faults += 1
            raise TooLong(f"{self.who} at {self.url} {fault.what}.")
        if (path, model) in self._served:
            # It has answered others like this one: something about this prompt is at fault.
            self.budget.used.faults += 1
            raise InfrastructureError(f"{self.who} at {self.url} {fault.what}.")
        asked = f" for model {model!r}" if model else ""
        raise RunError(
            f"{self.who} at {self.url} {fault.what}. It was asked{asked} at /{path}: check "
            "[teacher] model and base_url (which ends in /v1, as a rule); `rti doctor` looks."
        )
