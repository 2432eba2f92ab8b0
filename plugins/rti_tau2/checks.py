"""Does this environment score as τ²-bench does? Its episodes, judged by τ²-bench's own evaluator.

The official evaluator builds two simulators and replays the whole trajectory in one of them; the
score here is read off the live one.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field

from rti import Message, Session, Task, ToolCall, Turn
from rti_tau2.environment import Tau2Environment
from rti_tau2.reference import gold as by_the_book
from rti_tau2.session import Tau2Session
from rti_tau2.simulator import Simulator
from rti_tau2.upstream import Identifiers, catalogue, deterministic

MOST_TURNS = 60
SAYS = (
    "Is there anything else I can help you with?",
    "Do you confirm that I should proceed? (yes/no)",
    "Could you give me your name and zip code, or your user id?",
    "Unfortunately that is not possible.",
    "Please check your status bar.",
    "Please turn on airplane mode.",
    "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON.",
)


@define
class Agreement:
    """What a check has found. `odd` are the episodes that came out differently."""

    what: str
    episodes: int = 0
    rewarded: int = 0
    turns: int = 0
    odd: list[str] = field(factory=list)

    def as_row(self) -> str:
        """A row of the table."""
        agreed = f"{self.episodes - len(self.odd)}/{self.episodes}"
        return f"| {self.what} | {self.rewarded}/{self.episodes} | {agreed} | {self.turns} |"


def official(session: Tau2Session) -> float:
    """The reward that τ²-bench's own evaluator gives, by replaying the whole log."""
    from tau2.data_model.simulation import SimulationRun, TerminationReason
    from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation

    task = session.setting.task
    run = SimulationRun(
        id="check",
        task_id=task.id,
        start_time="",
        end_time="",
        duration=0.0,
        termination_reason=TerminationReason(session.ended or "max_steps"),
        messages=sorted(session.log, key=lambda message: message.timestamp),
    )
    with deterministic(Identifiers()):
        judged = evaluate_simulation(run, task, EvaluationType.ALL, False, session.setting.domain)
    return float(judged.reward)


async def play(environment: Tau2Environment, task: Task, agent: Any) -> Tau2Session:
    """An episode to its end, or to MOST_TURNS."""
    session = await environment.start(task)
    while not session.ended and session.turns < MOST_TURNS:
        await take(session, agent(session))
    return session


async def take(session: Session, message: Message) -> None:
    """One turn of a reference agent."""
    await session.step(Turn(0, (), (), (), message))


def compared(environment: Tau2Environment, tasks: Sequence[Task], what: str) -> Agreement:
    """A reference agent on tasks: rewards here, and the official ones."""
    agent = environment.reference(what)
    found = Agreement(f"{environment.domain}, {what}")
    for task in tasks:
        session = asyncio.run(play(environment, task, agent))
        _count(found, session, task)
    return found


def at_random(environment: Tau2Environment, episodes: int, seed: int) -> Agreement:
    """Episodes of a random agent, compared."""
    draw = random.Random(seed)
    tasks = environment.tasks("base")
    found = Agreement(f"{environment.domain}, random actions")
    agent = RandomAgent(draw, environment.domain)
    for _ in range(episodes):
        task = draw.choice(tasks)
        # Some begin by the book, so that rewards of both kinds occur.
        book = draw.choice((0, 2, 4, 8))
        length = draw.randint(2, 12)

        def next_turn(session: Tau2Session, book: int = book, length: int = length) -> Message:
            if session.turns < book:
                return by_the_book(session)
            return agent.turn() if session.turns < book + length else Message("assistant", SAYS[0])

        _count(found, asyncio.run(play(environment, task, next_turn)), task)
    return found


def all_of(
    environment: Tau2Environment,
    tasks: Sequence[Task],
    episodes: int,
    seed: int,
    to_fork: Sequence[Task],
) -> Iterator[Agreement]:
    """All checks of a domain, one after the other."""
    yield compared(environment, tasks, "gold")
    yield compared(environment, tasks, "noop")
    yield at_random(environment, episodes, seed)
    yield forked(environment, to_fork)


def forked(environment: Tau2Environment, tasks: Sequence[Task]) -> Agreement:
    """Gold episodes, forked at every turn and gone on with: the same end, nothing shared."""
    found = Agreement(f"{environment.domain}, forks")

    async def one(task: Task) -> None:
        session = await play(environment, task, by_the_book)
        end, score = session.state_digest(), session.score()
        for k in range(session.turns):
            fork = await session.fork(k)
            while not fork.ended and fork.turns < MOST_TURNS:
                await take(fork, by_the_book(fork))
            found.episodes += 1
            found.turns += fork.turns
            found.rewarded += fork.score() == 1.0
            same = fork.score() == score and fork.state_digest() == end
            if not same or session.state_digest() != end:
                found.odd.append(f"{task.id}, turn {k}")

    for task in tasks:
        asyncio.run(one(task))
    return found


def _count(found: Agreement, session: Tau2Session, task: Task) -> None:
    score = session.score()
    found.episodes += 1
    found.turns += session.turns
    found.rewarded += score == 1.0
    if score != official(session):
        found.odd.append(f"{task.id}: {score} here")


@define
class RandomAgent:
    """Says things and calls tools. Its calls are gold calls of any task, whole or spoilt, or any.

    So that records are really changed: hardly a call drawn from nothing would pass the checks.
    """

    draw: random.Random
    domain: str
    _calls: list[tuple[str, dict[str, Any]]] = field(init=False)
    _tools: dict[str, Any] = field(init=False)
    _values: list[Any] = field(init=False)

    def __attrs_post_init__(self) -> None:
        tasks = catalogue(self.domain).tasks.values()
        self._calls = [
            (action.name, dict(action.arguments))
            for task in tasks
            for action in task.evaluation_criteria.actions or []
            if action.requestor == "assistant"
        ]
        self._values = list({json.dumps(v): v for v in _leaves(c for _, c in self._calls)}.values())
        environment = Simulator.of(self.domain, next(iter(tasks))).environment
        self._tools = {
            tool.name: tool.openai_schema["function"]["parameters"]
            for tool in environment.get_tools()
        }

    def turn(self) -> Message:
        """Anything that an agent could do."""
        draw = self.draw
        if draw.random() < 0.15:
            return Message("assistant", draw.choice(SAYS))
        calls = [self._call() for _ in range(draw.choice((1, 1, 1, 2)))]
        return Message(
            "assistant", tool_calls=tuple(ToolCall(n, a, str(i)) for i, (n, a) in enumerate(calls))
        )

    def _call(self) -> tuple[str, dict[str, Any]]:
        draw = self.draw
        if self._calls and draw.random() < 0.8:
            name, arguments = draw.choice(self._calls)
            if arguments and draw.random() < 0.3:
                arguments = {**arguments, draw.choice(sorted(arguments)): draw.choice(self._values)}
            return name, arguments
        name = draw.choice(sorted(self._tools))
        wanted = sorted(self._tools[name].get("properties", {}))
        return name, {argument: draw.choice(self._values) for argument in wanted}


def _leaves(values: Any) -> Iterator[Any]:
    if isinstance(values, Mapping):
        yield from _leaves(values.values())
    elif isinstance(values, str) or not hasattr(values, "__iter__"):
        yield values
    else:
        for value in values:
            yield from _leaves(value)
