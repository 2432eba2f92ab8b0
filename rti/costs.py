"""What an environment costs: whole episodes a second, and what a live session weighs."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Callable, Sequence

from attrs import frozen

from rti.interfaces import Environment, Session
from rti.types import Message, Task, Turn

MOST_TURNS = 200
"""The reference agent gets as many turns as it needs."""


@frozen
class Costs:
    """Seconds of one core's work, and megabytes of Python objects.

    Attributes:
        episodes_a_second: whole episodes, from the start to the score.
        turns_a_second: their turns.
        start_ms: milliseconds to start a session, once the environment is warm.
        session_mb: a live session at its end, less what all sessions share.
        peak_mb: the most that all live sessions of a round took together.
    """

    episodes_a_second: float
    turns_a_second: float
    start_ms: float
    session_mb: float
    peak_mb: float


async def measure(
    environment: Environment,
    tasks: Sequence[Task],
    agent: Callable[[Session], Message],
    sessions: int,
    rounds: int,
) -> Costs:
    """Play `rounds` times `sessions` whole episodes at once, and weigh one round of them.

    Time and memory are taken apart, since weighing slows everything down. A first round, which
    warms up whatever is shared, counts for neither.
    """

    def chosen(number: int) -> list[Task]:
        return [tasks[(number * sessions + i) % len(tasks)] for i in range(sessions)]

    async def together(number: int) -> list[tuple[Session, int]]:
        return list(
            await asyncio.gather(*(_episode(environment, task, agent) for task in chosen(number)))
        )

    async def closed(played: list[tuple[Session, int]]) -> int:
        for session, _ in played:
            await session.close()
        return sum(turns for _, turns in played)

    for number in range(rounds):
        await closed(await together(number))
    began, turns = time.process_time(), 0
    for number in range(rounds):
        turns += await closed(await together(number))
    seconds = time.process_time() - began
    began = time.process_time()
    started = [await environment.start(task) for task in chosen(0)]
    start_ms = (time.process_time() - began) / sessions * 1e3
    await closed([(session, 0) for session in started])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        live = await together(0)
        held, peak = (value - before for value in tracemalloc.get_traced_memory())
        await closed(live)
    finally:
        tracemalloc.stop()
    return Costs(
        rounds * sessions / seconds,
        turns / seconds,
        start_ms,
        held / sessions / 2**20,
        peak / 2**20,
    )


async def _episode(
    environment: Environment, task: Task, agent: Callable[[Session], Message]
) -> tuple[Session, int]:
    session = await environment.start(task)
    for index in range(MOST_TURNS):
        step = await session.step(Turn(index, (0,), (0,), (0.0,), agent(session)))
        if step.done or step.truncated:
            break
    session.score()
    return session, index + 1
