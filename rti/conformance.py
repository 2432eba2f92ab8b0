"""Does an environment keep its promises? Deterministic, forkable at every turn, nothing shared.

Used by `rti doctor` and by `rti.testing.check_environment`; a broken promise is an AssertionError
that says in words which.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from rti.errors import CannotFork, NoReference
from rti.interfaces import Environment, Session
from rti.types import Evidence, Message, Privileged, Step, Task, Turn


async def check_task(environment: Environment, task: Task, max_turns: int) -> int:
    """Play one task by the reference agents (by one that says a word, where there is none).

    The same turns must give the same steps, digests and outcome in a second session; a fork at
    every turn must start in the state before that turn, continue to the same end, and share
    nothing with the session it came from. An environment that cannot fork says `CannotFork`.
    What cannot be lived again (a tool that draws, a live web site) may come out differently, if no
    fork behind it is given out.

    Returns:
        The number of turns that were forked.

    Raises:
        AssertionError: says what broke.
    """
    ends: dict[str, tuple[str, float]] = {}
    turns = 0
    for name in ("gold", "noop"):
        agent = environment.reference(name)
        if agent is None and name == "gold":
            continue
        try:
            played = await play(environment, task, agent or says_a_word, max_turns)
        except NoReference:
            continue
        where = f"task {task.id!r}, agent {name!r}"
        await _check_replay(environment, task, played, where)
        await _check_forks(played, where)
        await _check_close(played.session, where)
        ends[name] = (played.digests[-1], played.outcome)
        turns += len(played.turns)
        that(
            name != "gold" or played.outcome >= environment.threshold,
            f"{where}: outcome {played.outcome} is below the threshold "
            f"{environment.threshold}: the gold reference must succeed",
        )
    if len(ends) == 2:
        (gold_digest, gold_outcome), (noop_digest, noop_outcome) = ends.values()
        that(
            gold_outcome == noop_outcome or gold_digest != noop_digest,
            f"task {task.id!r}: two ends with different outcomes have one state_digest",
        )
    return turns


def that(holds: bool, otherwise: str) -> None:
    """A promise, and the words for when it is broken."""
    if not holds:
        raise AssertionError(otherwise)


def is_a(value: object, wanted: type, name: str) -> None:
    """A promise about a type."""
    that(
        isinstance(value, wanted),
        f"{name} gave {value!r} of type {type(value).__name__}: must be {wanted.__name__}",
    )


@frozen
class Play:
    """One rollout in an environment: digests[k] is the state before turn k, the last the end."""

    session: Session
    turns: tuple[Turn, ...]
    steps: tuple[Step, ...]
    digests: tuple[str, ...]
    outcome: float


def says_a_word(_: Session) -> Message:
    """The reference agent of an environment that has none."""
    return Message("assistant", "hm")


def stand_in(environment: Environment) -> Environment | None:
    """What the environment gives to be played in its place, so that no server is asked."""
    rehearsal = getattr(environment, "rehearsal", None)
    found: Environment | None = rehearsal() if rehearsal is not None else None
    return found


async def play(
    environment: Environment, task: Task, agent: Callable[[Session], Message], max_turns: int
) -> Play:
    """Play `task` with a reference agent.

    Raises:
        AssertionError: when the environment breaks a promise on the way.
    """
    session = await environment.start(task)
    turns: list[Turn] = []
    steps: list[Step] = []
    digests = [_digest(session)]
    while len(turns) < max_turns:
        message = agent(session)
        turn = Turn(
            index=len(turns),
            prompt_ids=(0,),
            completion_ids=(0,),
            rollout_logprobs=(0.0,),
            message=message,
        )
        is_a(session.evidence(len(turns)), Evidence, "evidence")
        that(
            _digest(session) == digests[-1],
            f"task {task.id!r}: the state changes while nobody steps (evidence, a look at it)",
        )
        step = await session.step(turn)
        is_a(step, Step, "step")
        turns.append(turn)
        steps.append(step)
        digests.append(_digest(session))
        if step.done or step.truncated:
            break
    is_a(session.privileged(), Privileged, "privileged")
    return Play(session, tuple(turns), tuple(steps), tuple(digests), _outcome(session))


def _digest(session: Session) -> str:
    digest = session.state_digest()
    is_a(digest, str, "state_digest")
    that(session.state_digest() == digest, "state_digest differs between two calls in one state")
    return digest


def _outcome(session: Session) -> float:
    outcome = session.score()
    that(
        isinstance(outcome, (int, float)) and 0 <= outcome <= 1,
        f"score gave {outcome!r}: outcomes lie in [0, 1]",
    )
    that(session.score() == outcome, "score differs between two calls in one state")
    return float(outcome)


async def _check_replay(environment: Environment, task: Task, play: Play, where: str) -> None:
    fresh = await environment.start(task)
    that(
        list(fresh.opening) == list(play.session.opening),
        f"{where}: two sessions of one task open differently",
    )
    that(
        list(fresh.tools) == list(play.session.tools),
        f"{where}: two sessions of one task list different tools",
    )
    that(
        _digest(fresh) == play.digests[0], f"{where}: two sessions of one task start in two states"
    )
    try:
        # `when = "before_step"` forks a session that stands right before the turn.
        unplayed = await fresh.fork(0)
    except CannotFork:
        unplayed = None
    await _check_continues(fresh, play, 0, f"{where}: a second session")
    if unplayed is not None:
        that(
            _digest(unplayed) == play.digests[0],
            f"{where}: a fork shares state with the session it came from, which played on",
        )
    await fresh.close()
    if unplayed is not None:
        that(
            _digest(unplayed) == play.digests[0],
            f"{where}: a session, when closed, takes its fork with it",
        )
        await _check_continues(unplayed, play, 0, f"{where}: a fork of a session not yet played")
        await unplayed.close()
    that(
        _digest(play.session) == play.digests[-1],
        f"{where}: a second session changed the state of the first (shared state)",
    )


async def _check_continues(session: Session, play: Play, k: int, who: str) -> None:
    """Play turns k… again: every step and state, and the outcome, must be as the first time."""
    for turn, step, digest in zip(
        play.turns[k:], play.steps[k:], play.digests[k + 1 :], strict=True
    ):
        same = await session.step(turn) == step
        if (not same or _digest(session) != digest) and await _unforkable_behind(play, turn.index):
            return
        that(same, f"{who} answers turn {turn.index} differently")
        that(_digest(session) == digest, f"{who} is in another state after turn {turn.index}")
    that(_outcome(session) == play.outcome, f"{who} ends with another outcome")


async def _unforkable_behind(play: Play, index: int) -> bool:
    """Whether the environment knows that turn `index` cannot be lived again."""
    for k in range(index + 1, len(play.turns) + 1):
        try:
            fork = await play.session.fork(k)
        except CannotFork:
            continue
        await fork.close()
        return False
    return True


async def _check_forks(play: Play, where: str) -> None:
    original = play.session
    for k in range(len(play.turns)):
        try:
            fork, sibling = await original.fork(k), await original.fork(k)
        except CannotFork:
            continue
        who = f"{where}: the fork before turn {k}"
        for copy_ in (fork, sibling):
            that(_digest(copy_) == play.digests[k], f"{who} is not in the state before that turn")
        that(
            list(fork.opening) == list(original.opening)
            and list(fork.tools) == list(original.tools),
            f"{who} has another opening or other tools",
        )
        await _check_continues(fork, play, k, who)
        that(
            _digest(sibling) == play.digests[k],
            f"{who} shares state with another fork: stepping one changed the other",
        )
        try:
            second = await fork.fork(k)
        except CannotFork:
            pass
        else:
            that(
                _digest(second) == play.digests[k],
                f"{who} cannot itself be forked at that turn: another state",
            )
            await second.close()
        await fork.close()
        that(_digest(sibling) == play.digests[k], f"{who}, when closed, takes another fork with it")
        await sibling.close()
        that(
            _digest(original) == play.digests[-1] and _outcome(original) == play.outcome,
            f"{who} shares state with the session it came from",
        )


async def _check_close(session: Session, where: str) -> None:
    await session.close()
    try:
        await session.close()
    except Exception as error:  # whatever it is, it is the fault this check looks for
        raise AssertionError(f"{where}: close called twice raises {error!r}") from error
