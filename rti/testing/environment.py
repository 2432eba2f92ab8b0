"""The check of an environment, for its author's tests."""

from __future__ import annotations

from rti.conformance import check_task, is_a, that
from rti.interfaces import Environment


async def check_environment(
    environment: Environment, tasks: int = 3, *, split: str = "train", max_turns: int = 20
) -> None:
    """The contract of an Environment, on the first `tasks` tasks of a split.

    Each task is played by the reference agents (by one that says a word, where there is none).
    The same turns must give the same steps, digests and outcome in a second session; a fork at
    every turn must start in the state before that turn, continue to the same end, and share
    nothing with the session it came from. An environment that cannot fork says `CannotFork`.

    Args:
        environment: already bound, if it needs a run's context.
        tasks: how many tasks to play.
        split: of the tasks.
        max_turns: rollouts are cut there.

    Raises:
        AssertionError: says what broke.
    """
    is_a(environment.leaks_by_design, bool, "leaks_by_design")
    that(
        0 < environment.threshold <= 1,
        f"threshold is {environment.threshold!r}: must be above 0 and at most 1",
    )
    listed = list(environment.tasks(split))
    that(bool(listed), f"tasks({split!r}) is empty")
    that(listed == list(environment.tasks(split)), f"tasks({split!r}) differs between two calls")
    that(
        len({task.id for task in listed}) == len(listed),
        f"tasks({split!r}) has two tasks of one id",
    )
    for task in listed[:tasks]:
        await check_task(environment, task, max_turns)
