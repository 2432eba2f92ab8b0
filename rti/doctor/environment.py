"""The examination of an environment: reference agents, forks, leaks in evidence, costs."""

from __future__ import annotations

import asyncio
import os
import re
import time
import unicodedata
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from rti.conformance import check_task, play
from rti.doctor.finding import Finding, attempt, read_answer
from rti.doctor.parts import Parts
from rti.errors import NoReference, RtiError
from rti.interfaces import Environment
from rti.types import Evidence, Task

GOLD_TURNS = 200
"""Reference agents get as many turns as they need: the config's limit is the policy's."""
SHOWN = 200
"""Letters of an error that are shown."""
LIVE_SESSIONS = 16
"""Sessions held at once to measure what one weighs."""


async def look(parts: Parts) -> AsyncIterator[Finding]:
    """Ask its server, play the reference agents, fork at every turn, look for leaks and costs."""
    environment, tasks = parts["environment"], parts.tasks
    for finding in await attempt("check", _served, parts):
        yield finding
    if environment is None or not tasks:
        return
    max_turns = parts.config.rollout.max_turns
    for check, function, inputs in (
        ("gold", _gold, (tasks, parts.split, max_turns)),
        ("noop", _noop, (tasks, parts.split)),
        ("forks", _forks, (tasks[: parts.settings.forks],)),
        ("evidence", _leaks, (tasks,)),
        ("cost", _costs, (tasks,)),
    ):
        for finding in await attempt(check, function, environment, *inputs):
            yield finding


async def _served(parts: Parts) -> list[Finding]:
    """The environment's own word about what its sessions ask, if it has any."""
    asked = parts.served or parts["environment"]
    if not hasattr(asked, "check"):
        return []
    if parts.offline:
        note = Finding("note", "check", "not asked offline: what its sessions ask")
        return [note] if parts.served is not None else []
    limit = parts.config.rollout.timeout_s
    try:
        async with asyncio.timeout(limit):
            answers = [read_answer(answer) for answer in await asked.check()]
    except TimeoutError:
        answers = [("error", f"no word within [rollout] timeout_s = {limit:g} s")]
    return [Finding(level, "check", text) for level, text in answers]


async def _gold(
    environment: Environment, tasks: Sequence[Task], split: str, max_turns: int
) -> Finding:
    agent = environment.reference("gold")
    if agent is None:
        return Finding(
            "warning",
            "gold",
            "the environment has no gold reference agent: nothing shows that its tasks can be "
            "solved. Return one from reference('gold') (SimpleEnvironment: `gold` in every line).",
        )
    wrong: list[str] = []
    unknown: list[str] = []
    longest, too_long = 0, 0
    for task in tasks:
        try:
            played = await play(environment, task, agent, GOLD_TURNS)
        except NoReference as error:
            unknown.append(str(error))
            continue
        except (RtiError, AssertionError) as error:
            wrong.append(f"{task.id}: {error}")
            continue
        await played.session.close()
        longest = max(longest, len(played.turns))
        too_long += len(played.turns) > max_turns
        if played.outcome < environment.threshold:
            errors = [m.content for step in played.steps for m in step.observations if m.error]
            first = f"; on the way: {errors[0][:SHOWN]}" if errors else ""
            wrong.append(f"{task.id}: outcome {played.outcome:g}{first}")
    right = len(tasks) - len(wrong) - len(unknown)
    text = f"{right}/{len(tasks)} tasks of split {split!r} succeed, in at most {longest} turns"
    if wrong:
        return Finding("error", "gold", text + "; these cannot be learned:", (*wrong, *unknown))
    if unknown:
        return Finding(
            "warning",
            "gold",
            f"{text}; of {len(unknown)} others nothing shows that they can be solved:",
            tuple(unknown),
        )
    if too_long:
        return Finding(
            "warning",
            "gold",
            f"{text}; {too_long} of them need more than [rollout] max_turns = {max_turns}",
        )
    return Finding("ok", "gold", text)


async def _noop(environment: Environment, tasks: Sequence[Task], split: str) -> Finding:
    agent = environment.reference("noop")
    if agent is None:
        return Finding(
            "warning", "noop", "the environment has no do-nothing agent: reference('noop')."
        )
    free: list[str] = []
    for task in tasks:
        played = await play(environment, task, agent, GOLD_TURNS)
        await played.session.close()
        if played.outcome >= environment.threshold:
            free.append(task.id)
    if free:
        return Finding(
            "warning",
            "noop",
            f"{len(free)}/{len(tasks)} tasks of split {split!r} succeed when nothing is done: "
            "leave them out of training.",
            tuple(free),
        )
    return Finding("ok", "noop", f"0/{len(tasks)} tasks succeed when nothing is done")


async def _forks(environment: Environment, tasks: Sequence[Task]) -> Finding:
    broken: list[str] = []
    turns = 0
    for task in tasks:
        try:
            turns += await check_task(environment, task, GOLD_TURNS)
        except AssertionError as error:
            broken.append(str(error))
    text = f"{len(tasks)} tasks replayed, and forked at every turn ({turns} turns)"
    if broken:
        return Finding(
            "error", "forks", text + ": repairs would not be what they seem", tuple(broken)
        )
    return Finding("ok", "forks", text + ": same states, steps and outcomes, nothing shared")


async def _leaks(environment: Environment, tasks: Sequence[Task]) -> Finding:
    leaking: list[str] = []
    for task in tasks:
        session = await environment.start(task)
        facts = [f for f in session.privileged().facts if _norm(f)]
        said = _words(session.evidence(0))
        found = [f for f in facts if re.search(rf"(?<!\w){re.escape(_norm(f))}(?!\w)", said)]
        if found:
            leaking.append(f"{task.id}: " + ", ".join(map(repr, found)))
        await session.close()
    if not leaking:
        return Finding(
            "ok", "evidence", f"no privileged string in the evidence of {len(tasks)} tasks"
        )
    text = f"privileged strings in the evidence of {len(leaking)}/{len(tasks)} tasks"
    if environment.leaks_by_design:
        return Finding("note", "evidence", text + ", declared: leaks_by_design", tuple(leaking))
    return Finding(
        "error",
        "evidence",
        text + ". Take them out of evidence(), or declare leaks_by_design:",
        tuple(leaking),
    )


async def _costs(environment: Environment, tasks: Sequence[Task]) -> Finding:
    agent = environment.reference("gold") or environment.reference("noop")
    before = _resident()
    began = time.perf_counter()
    live = [await environment.start(tasks[i % len(tasks)]) for i in range(LIVE_SESSIONS)]
    start_ms = (time.perf_counter() - began) / LIVE_SESSIONS * 1e3
    after = _resident()
    weight = (
        f"{max(0, after - before) / LIVE_SESSIONS / 2**20:.3f} MB more in memory a live session"
        if before and after
        else "memory not measured on this system"
    )
    for session in live:
        await session.close()
    per_turn = ""
    for task in tasks:
        if agent is None:
            break
        began = time.perf_counter()
        try:
            played = await play(environment, task, agent, GOLD_TURNS)
        except NoReference:
            continue
        turns = max(1, len(played.turns))
        per_turn = f", {(time.perf_counter() - began) / turns * 1e3:.2f} ms a turn of an episode"
        await played.session.close()
        break
    return Finding("ok", "cost", f"{start_ms:.2f} ms to start a session{per_turn}, {weight}")


def _resident() -> int:
    """Bytes of this process in memory; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _norm(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _words(evidence: Evidence) -> str:
    return _norm(" ".join([evidence.text, *map(str, evidence.facts.values())]))
