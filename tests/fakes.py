"""Named stand-ins for tests. Each does one thing on purpose; everything else in a test is real."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from attrs import define, field

from rti import (
    CannotFork,
    Completion,
    Correction,
    Decision,
    Diagnosis,
    Evidence,
    Floats,
    History,
    Ids,
    Intervention,
    Message,
    Privileged,
    RequestKey,
    SamplingParams,
    Step,
    Task,
    Tool,
    Turn,
    Verdict,
)
from rti.rollout import Actor, Episode
from rti.types import Rollout

# --- a run ---------------------------------------------------------------------------------------

POCKET = """
[run]
seed = 3
steps = 3
[model]
path = "rti_pocket:base"
[environment]
use = "pocket"
[renderer]
use = "pocket"
[rollout]
group_size = 4
max_turns = 4
# Some of the agent's phrases are longer than 18 words and are cut off: easy groups fail now and
# then, however good the base model is, so that there is always something to learn.
max_new_tokens = 18
families = { AH = 1, BH = 1, A1 = 2, A3 = 1 }
[trainer]
use = "hf"
learning_rate = 5e-4
[reporter]
use = "jsonl"
[checkpoint]
every = 1
keep = 1
"""
"""The config of a small pocket run."""

# --- the agent ----------------------------------------------------------------------------------


@define
class SpeakingPolicy:
    """Samples what `says(words of the prompt, key)` answers; scores with a real policy."""

    inner: Any
    renderer: Any
    says: Callable[[str, RequestKey], str]
    asked: list[tuple[str, RequestKey]] = field(factory=list)
    scored: list[tuple[Ids, Ids, int]] = field(factory=list)

    @property
    def version(self) -> int:
        return int(self.inner.version)

    @property
    def usage(self) -> Mapping[str, float]:
        return dict(self.inner.usage)

    async def sample(
        self, prompts: Sequence[Ids], params: SamplingParams, keys: Sequence[RequestKey], stop: Ids
    ) -> list[Completion]:
        said = []
        for prompt, key in zip(prompts, keys, strict=True):
            words = self.renderer.decode(prompt)
            self.asked.append((words, key))
            said.append(self.renderer.encode(self.says(words, key))[: params.max_new_tokens])
        logprobs = await self.inner.score(prompts, said, self.version)
        return [
            Completion(ids, lps, "stop" if ids[-1] in stop else "length", self.version)
            for ids, lps in zip(said, logprobs, strict=True)
        ]

    async def score(
        self, prompts: Sequence[Ids], completions: Sequence[Ids], version: int
    ) -> list[Floats]:
        self.scored += [(p, c, version) for p, c in zip(prompts, completions, strict=True)]
        found: list[Floats] = await self.inner.score(prompts, completions, version)
        return found

    async def load(self, weights: Mapping[str, Any], version: int) -> None:
        await self.inner.load(weights, version)

    async def gather(self, coroutines: Sequence[Awaitable[Any]]) -> list[Any]:
        found: list[Any] = await self.inner.gather(coroutines)
        return found


def closes_with_the_code(words: str, key: RequestKey) -> str:
    """A pocket agent that closes with the code it was given, and else hands over."""
    after = words.split()
    if "code" in after:
        return f"all set . close {after[after.index('code') + 1]} <e>"
    return "giving up . transfer <e>"


def gives_up(words: str, key: RequestKey) -> str:
    """A pocket agent that hands over whatever it sees."""
    return "giving up . transfer <e>"


async def played(actor: Actor, task: Task, turns: Sequence[str]) -> Episode:
    """An episode in which the agent said these turns (pocket words), scored by the real policy."""
    session = await actor.environment.start(task)
    made: list[Turn] = []
    messages = list(session.opening)
    for index, words in enumerate(turns):
        prompt, ids = actor.renderer.prompt(messages), actor.renderer.encode(words)
        version = actor.policy.version
        [logprobs] = await actor.policy.score([prompt], [ids], version)
        turn = Turn(index, prompt, ids, logprobs, actor.renderer.parse(ids), version)
        turn, _, _ = await actor.execute(session, turn)
        made.append(turn)
        messages += [turn.message, *(turn.observations or ())]
    return Episode(await actor.finish(session, Rollout(task, 0), made, False), session)


# --- the environment ----------------------------------------------------------------------------

Trouble = Exception | float | None
"""Raise this, or take so many seconds, or nothing."""


@define
class TroubledEnvironment:
    """A real environment with trouble at "start", "step", "fork", "score", "close", or a look.

    `trouble["step"]` is what happens at the first step, the second, … of all sessions; then peace.
    `log` lists every call; looks ("opening", "tools", "evidence", "privileged") are not in it.
    """

    inner: Any
    trouble: dict[str, list[Trouble]] = field(factory=dict)
    log: list[str] = field(factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def next_trouble(self, where: str) -> float:
        if where not in ("opening", "tools", "evidence", "privileged"):
            self.log.append(where)
        waiting = self.trouble.get(where)
        now = waiting.pop(0) if waiting else None
        if isinstance(now, Exception):
            raise now
        return now or 0.0

    async def start(self, task: Task) -> TroubledSession:
        await asyncio.sleep(self.next_trouble("start"))
        return TroubledSession(await self.inner.start(task), self)


@define
class TroubledSession:
    """A session of a TroubledEnvironment."""

    inner: Any
    environment: TroubledEnvironment

    @property
    def opening(self) -> Sequence[Message]:
        self.environment.next_trouble("opening")
        return tuple(self.inner.opening)

    @property
    def tools(self) -> Sequence[Tool]:
        self.environment.next_trouble("tools")
        return tuple(self.inner.tools)

    async def step(self, turn: Turn) -> Step:
        await asyncio.sleep(self.environment.next_trouble("step"))
        found: Step = await self.inner.step(turn)
        return found

    async def fork(self, k: int) -> TroubledSession:
        await asyncio.sleep(self.environment.next_trouble("fork"))
        return TroubledSession(await self.inner.fork(k), self.environment)

    def state_digest(self) -> str:
        return str(self.inner.state_digest())

    def evidence(self, k: int) -> Evidence:
        self.environment.next_trouble("evidence")
        found: Evidence = self.inner.evidence(k)
        return found

    def privileged(self) -> Privileged:
        self.environment.next_trouble("privileged")
        found: Privileged = self.inner.privileged()
        return found

    def score(self) -> float:
        self.environment.next_trouble("score")
        return float(self.inner.score())

    async def close(self) -> None:
        self.environment.next_trouble("close")
        await self.inner.close()


def cannot_fork() -> CannotFork:
    """What an environment without forks says."""
    return CannotFork("this simulator keeps no log")


# --- the roles ----------------------------------------------------------------------------------


@define
class FlagsTurns:
    """Flags the turns of these indices, and remembers all that it was shown."""

    indices: Sequence[int]
    direction: str = "ask user to run it"
    seen: list[tuple[Turn, History, Evidence]] = field(factory=list)

    async def validate(self, turn: Turn, history: History, evidence: Evidence) -> Diagnosis:
        self.seen.append((turn, history, evidence))
        return Diagnosis(turn.index in self.indices, "wrong-side", self.direction)


@define
class Writes:
    """Corrects with these words, whatever the draft; `prompt` is the corrector prompt in words.

    None instead of words offers nothing. With a list the calls take one entry after the other.
    """

    renderer: Any
    words: str | list[str | None] | None
    prompt: str | None = None
    calls: list[tuple[Any, ...]] = field(factory=list)

    async def correct(self, *arguments: Any) -> Correction | None:
        self.calls.append(arguments)
        words = self.words
        if isinstance(words, list):
            words = words[min(len(self.calls), len(words)) - 1]
        if words is None:
            return None
        ids = self.renderer.encode(words)
        prompt = None if self.prompt is None else self.renderer.encode(self.prompt)
        return Correction(ids, self.renderer.parse(ids), prompt)


@define
class AsksForTheFix:
    """Corrects a pocket desk's turn: asks the user to run the fix that the user named."""

    renderer: Any
    prompt: str | None = None

    async def correct(
        self, draft: Turn, diagnosis: Diagnosis, history: History, tools: Sequence[Tool]
    ) -> Correction | None:
        said = history.messages[1].content.split()
        fix = " ".join(said[said.index("is") + 1 : -1]) if "is" in said else "reboot"
        writes = Writes(self.renderer, f"need {fix} . ask {fix} <e>", self.prompt)
        return await writes.correct(draft, diagnosis, history, tools)


@define
class Judges:
    """Accepts or rejects every correction, and remembers what it was shown."""

    accepts: bool
    reason: str = ""
    seen: list[tuple[Any, ...]] = field(factory=list)

    async def verify(self, *arguments: Any) -> Verdict:
        self.seen.append(arguments)
        return Verdict(self.accepts, self.reason)


@define
class Admits:
    """A gate that admits, or refuses, everything, and remembers what it saw."""

    admits: bool = True
    seen: list[Intervention] = field(factory=list)

    def admit(self, intervention: Intervention) -> Decision:
        self.seen.append(intervention)
        return Decision(self.admits, 1.0, 0.5, "on principle")


@define
class Weighs:
    """Gives these weights."""

    weights: Sequence[float] | None = None

    def weigh(self, intervention: Intervention) -> Floats:
        if self.weights is not None:
            return tuple(self.weights)
        return (1.0,) * len(intervention.rollout_logprobs or ())


# --- words without a model ----------------------------------------------------------------------


class ByteRenderer:
    """Conversations as UTF-8 bytes: `role: content` a line, and 256 for the end of a turn."""

    stop_ids: Ids = (256,)

    def encode(self, text: str) -> Ids:
        return tuple(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Ids:
        said = "".join(f"{m.role}: {m.content}\n" for m in messages)
        return self.encode(f"{said}assistant: ")

    def turn(self, message: Message) -> Ids:
        return (*self.encode(message.content), *self.stop_ids)

    def parse(self, ids: Sequence[int]) -> Message:
        return Message("assistant", self.decode(ids), token_ids=tuple(ids))

    def extends(self, before: Sequence[int], after: Sequence[int]) -> bool:
        return tuple(after[: len(before)]) == tuple(before)


@define
class RepliesWith:
    """A policy that replies with these ids, whatever it is asked, and keeps what it was asked."""

    ids: Ids
    asked: list[tuple[Ids, SamplingParams, RequestKey, Ids]] = field(factory=list)

    async def sample(
        self, prompts: Sequence[Ids], params: SamplingParams, keys: Sequence[RequestKey], stop: Ids
    ) -> list[Completion]:
        self.asked += [(p, params, k, stop) for p, k in zip(prompts, keys, strict=True)]
        return [Completion(self.ids, (-1.0,) * len(self.ids), "stop", 0) for _ in prompts]
