"""An environment in a screenful: tools are typed functions, tasks lines of JSON, forks replays."""

from __future__ import annotations

import copy
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from attrs import define, field

from rti.convert import did_you_mean, listed
from rti.environments.digest import digest
from rti.environments.functions import BadCall, FunctionTool
from rti.errors import (
    CannotFork,
    ConfigError,
    InfrastructureError,
    NoReference,
    RtiError,
    RunError,
)
from rti.interfaces import Session
from rti.options import above, not_empty, option
from rti.types import Evidence, Message, Privileged, Step, Task, Tool, ToolCall, Turn

Row = Mapping[str, Any]
"""One line of the tasks' file."""
_TEXTS = ("id", "user", "system", "family", "split", "evidence")


@define
class SimpleEnvironment:
    """Derive from it: name the tools, make a state, judge its end.

    A line of the tasks' file is a JSON object. It has `user`, what the user says first; it may have
    `id`, `split` (default "train"), `family`, `system` (in place of the class's), `evidence` (text:
    what success means, never the answer), `privileged` (texts: the answer), `gold` (turns that
    solve it, for `rti doctor`), and whatever else `begin` and `outcome` want to know.

    An episode ends with a turn that calls no tool, unless `reply` answers it, or when `over` says
    so. Tools act on their state alone: a fork makes a new state and runs the turns again.

        @define
        class Library(SimpleEnvironment):
            "A lending desk."

            path: str = option("library.jsonl", "JSONL file of the tasks.")
            system = "You work at the desk of a library."
            tools = (search, lend)

            def begin(self, row):
                return Shelf(row["books"])

            def outcome(self, state, row, answer):
                return float(state.lent == [row["wanted"]])
    """

    tools: ClassVar[Sequence[Callable[..., Any]]] = ()
    """The agent's: functions of a state and of typed arguments, with docstrings."""
    user_tools: ClassVar[Sequence[Callable[..., Any]]] = ()
    """Those on the user's side, which `reply` may run: the agent knows of them, and has them not.
    """
    system: ClassVar[str] = ""
    leaks_by_design: ClassVar[bool] = False

    path: str = option(
        "tasks.jsonl",
        "JSONL file of the tasks; a relative one from here, or else beside the plug-in.",
        not_empty,
    )
    threshold: float = option(1.0, "Lowest outcome that is a success.", above(0))
    _rows: tuple[Task, ...] | None = field(init=False, default=None, repr=False, eq=False)
    _kit: dict[str, FunctionTool] | None = field(init=False, default=None, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        for name, wanted in (("begin", "(self, row)"), ("outcome", "(self, state, row, answer)")):
            if getattr(type(self), name) is getattr(SimpleEnvironment, name):
                raise ConfigError(f"[environment] {type(self).__name__}: define {name}{wanted}.")

    # --- what is yours ------------------------------------------------------------------------

    def begin(self, row: Row) -> Any:
        """The state of a new session: an object of its own, the same for the same row."""
        raise NotImplementedError("define begin(self, row): the state of a new session")

    def outcome(self, state: Any, row: Row, answer: str) -> float:
        """From 0 to 1, how well it ended; `answer` is the last text said in a turn without calls.

        It must not change the state.
        """
        raise NotImplementedError("define outcome(self, state, row, answer): from 0 to 1")

    def reply(self, state: Any, row: Row, text: str) -> str | None:
        """What the user says to a turn without calls; None, the default, ends the episode."""
        return None

    def over(self, state: Any, row: Row) -> bool:
        """Whether the episode is over after a turn."""
        return False

    def evidence(self, state: Any, row: Row) -> str:
        """What success means and how far it is: for Validator and Verifier, never the answer.

        Without one of your own it is the row's `evidence`.
        """
        return str(row.get("evidence", ""))

    def digest(self, state: Any) -> str:
        """A hash that is equal for equal states. This one looks at all that a state holds."""
        return digest(state)

    # --- what is done with it -----------------------------------------------------------------

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split, in the file's order.

        Raises:
            ConfigError: for a file or a line that cannot be used, or a split that no task has.
        """
        if self._rows is None:
            self._rows = _read(self._file())
        found = [task for task in self._rows if task.split == split]
        if not found:
            splits = dict.fromkeys(task.split for task in self._rows)
            raise ConfigError(
                f"[environment] {self._file()}: no task is of split {split!r}; there are "
                f"{listed(splits)}."
            )
        return found

    async def start(self, task: Task) -> SimpleSession:
        """A fresh session."""
        with _own("begin", task):
            state = self.begin(copy.deepcopy(task.data["row"]))
            state = await state if inspect.isawaitable(state) else state
        return SimpleSession(self, task, self.kit, state)

    @property
    def kit(self) -> Mapping[str, FunctionTool]:
        """All tools by name.

        Raises:
            ConfigError: for a function that cannot be one, or two of one name.
        """
        if self._kit is None:
            for name in ("tools", "user_tools"):
                if not isinstance(getattr(self, name), list | tuple):
                    raise ConfigError(
                        f"[environment] {type(self).__name__}.{name} must be a tuple of functions; "
                        "one alone needs a comma: (search,)."
                    )
            made = [FunctionTool.of(f, "agent") for f in self.tools]
            made += [FunctionTool.of(f, "user") for f in self.user_tools]
            names = [each.tool.name for each in made]
            for name in names:
                if names.count(name) > 1:
                    raise ConfigError(f"tool {name}: there are two of that name. Rename one.")
            self._kit = dict(zip(names, made, strict=True))
        return self._kit

    def reference(self, name: str) -> Callable[[Session], Message] | None:
        """ "gold" plays the rows' `gold`, where any has one; "noop" does nothing."""
        if name == "noop":
            return lambda _: Message("assistant", "Sorry.")
        rows = self._rows if self._rows is not None else _read(self._file())
        return _gold if name == "gold" and any("gold" in t.data["row"] for t in rows) else None

    def _file(self) -> Path:
        path = Path(self.path)
        module = sys.modules.get(type(self).__module__)
        beside = Path(getattr(module, "__file__", None) or ".").parent / path
        return beside if not path.exists() and beside.exists() else path


@define(eq=False)
class SimpleSession:
    """An episode: its state, and the turns and answers so far, so that it can be lived again."""

    environment: SimpleEnvironment
    task: Task
    kit: Mapping[str, FunctionTool] = field(repr=False)
    state: Any
    answer: str = field(init=False, default="")
    done: bool = field(init=False, default=False)
    _past: list[tuple[Message, Step]] = field(init=False, factory=list, repr=False)
    _digests: list[str] = field(init=False, factory=list, repr=False)
    _closed: bool = field(init=False, default=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._digests.append(self.state_digest())

    @property
    def row(self) -> Row:
        """The task's line of the file: a copy, which may be done with as one likes."""
        found: Row = copy.deepcopy(self.task.data["row"])
        return found

    @property
    def turns(self) -> int:
        """How many turns have been executed."""
        return len(self._past)

    @property
    def opening(self) -> Sequence[Message]:
        """System, where there is one, and what the user says first."""
        row = self.task.data["row"]
        system = row.get("system", self.environment.system)
        user = Message("user", row["user"])
        return (Message("system", system), user) if system else (user,)

    @property
    def tools(self) -> Sequence[Tool]:
        """The agent's, then the user's."""
        return [each.tool for each in self.kit.values()]

    async def step(self, turn: Turn) -> Step:
        """Run the turn's calls; without any, let the user answer.

        A call that the model got wrong is an observation with `error`.

        Raises:
            RunError: when the episode is over, or the session closed.
        """
        return await self._execute(turn.message)

    async def _execute(self, message: Message) -> Step:
        if self.done or self._closed:
            raise RunError(f"task {self.task.id!r}: the session is over")
        if message.tool_calls:
            observations = tuple([await self._call(call) for call in message.tool_calls])
        else:
            self.answer = message.content
            with _own("reply", self.task):
                said = self.environment.reply(self.state, self.row, message.content)
            if said is not None and not isinstance(said, str):
                raise RunError(f"task {self.task.id!r}: reply() gave {said!r}: wanted text or None")
            observations = () if said is None else (Message("user", said),)
            self.done = said is None
        with _own("over", self.task):
            self.done = self.done or bool(self.environment.over(self.state, self.row))
        step = Step(observations, done=self.done)
        self._past.append((message, step))
        self._digests.append(self.state_digest())
        return step

    async def _call(self, call: ToolCall) -> Message:
        try:
            return Message("tool", await self._result(call), tool_call_id=call.id)
        except BadCall as error:
            return Message("tool", f"Error: {error}", tool_call_id=call.id, error=True)

    async def _result(self, call: ToolCall) -> str:
        own = {name: t for name, t in self.kit.items() if t.tool.owner == "agent"}
        if call.name not in own:
            raise BadCall(
                f"there is no tool {call.name!r}.{did_you_mean(call.name, own)} There are: "
                f"{listed(own)}."
            )
        return await own[call.name](self.state, call.arguments)

    async def fork(self, k: int) -> SimpleSession:
        """A new session in which turns 0 … k−1 have been executed again.

        Observations and states are compared with those of the first time.

        Raises:
            CannotFork: there were fewer than `k` turns, or something came out differently: a tool
                that draws, looks at the clock or asks somebody cannot be lived again.
        """
        if not 0 <= k <= self.turns:
            raise CannotFork(f"there is no turn {k}: {self.turns} have been executed")
        copy_ = await self.environment.start(self.task)
        try:
            if copy_._digests[0] != self._digests[0]:
                raise CannotFork("begin() makes another state from the same row")
            for index, (message, step) in enumerate(self._past[:k]):
                if await copy_._execute(message) != step:
                    raise CannotFork(f"turn {index} came out differently when executed again")
                if copy_._digests[-1] != self._digests[index + 1]:
                    raise CannotFork(f"turn {index} led to another state when executed again")
        except BaseException:
            await copy_.close()
            raise
        return copy_

    def state_digest(self) -> str:
        """A hash of all that decides how it goes on and how it ends."""
        return digest((self.environment.digest(self.state), self.answer, self.done, self.turns))

    def evidence(self, k: int) -> Evidence:
        """What the environment says of the state as it is now."""
        with _own("evidence", self.task):
            text = self.environment.evidence(self.state, self.row)
        if not isinstance(text, str):
            raise RunError(f"task {self.task.id!r}: evidence() gave {text!r}: wanted text")
        return Evidence(text)

    def privileged(self) -> Privileged:
        """The row's `privileged`."""
        return Privileged(tuple(self.task.data["row"].get("privileged", ())))

    def score(self) -> float:
        """What `outcome` says.

        Raises:
            RunError: when that is no number from 0 to 1.
        """
        with _own("outcome", self.task):
            outcome = self.environment.outcome(self.state, self.row, self.answer)
        if not isinstance(outcome, int | float) or not 0 <= outcome <= 1:
            raise RunError(f"task {self.task.id!r}: outcome() gave {outcome!r}: wanted 0 to 1")
        return float(outcome)

    async def close(self) -> None:
        """Close the state, where it has a `close`. Its score can still be read."""
        if self._closed:
            return
        self._closed = True
        close = getattr(self.state, "close", None)
        if callable(close):
            left = close()
            if inspect.isawaitable(left):
                await left


@contextmanager
def _own(what: str, task: Task) -> Iterator[None]:
    """Around a user's own function: a mistake in it, or in the task's line, says where it is.

    Raises:
        InfrastructureError: it raised something; that is no failure of the policy.
    """
    try:
        yield
    except (RtiError, NotImplementedError):
        raise
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        hint = " Does the task's line lack something?" if isinstance(error, LookupError) else ""
        raise InfrastructureError(
            f"task {task.id!r}: {what}() raised {type(error).__name__}: {error} "
            f"({Path(at.filename).name}, line {at.lineno}).{hint}"
        ) from error


def _gold(session: Session) -> Message:
    assert isinstance(session, SimpleSession)
    if "gold" not in session.task.data["row"]:
        raise NoReference(
            f"task {session.task.id!r}: its line has no `gold`, the turns that solve it"
        )
    turns = session.row["gold"]
    turn = turns[session.turns] if session.turns < len(turns) else "Done."
    if isinstance(turn, str):
        return Message("assistant", turn)
    calls = turn if isinstance(turn, list) else [turn]
    return Message(
        "assistant",
        tool_calls=tuple(
            ToolCall(call["name"], call.get("arguments", {}), str(place))
            for place, call in enumerate(calls)
        ),
    )


def _read(path: Path) -> tuple[Task, ...]:
    """The tasks of a file.

    Raises:
        ConfigError: says which line is wrong, and how.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"[environment] path = {str(path)!r}: {error}. Name a file with a JSON object a line."
        ) from error
    tasks: dict[str, Task] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            task = _task(json.loads(line), number)
            if task.id in tasks:
                raise ValueError(f"id {task.id!r} stands in an earlier line too")
        except ValueError as error:
            raise ConfigError(f"[environment] {path}:{number}: {error}.") from error
        tasks[task.id] = task
    if not tasks:
        raise ConfigError(f"[environment] {path}: there is no task in it.")
    return tuple(tasks.values())


def _task(row: Any, number: int) -> Task:
    if not isinstance(row, dict):
        raise ValueError("a task must be a JSON object")
    for name in _TEXTS:
        if not isinstance(row.get(name, ""), str):
            raise ValueError(f"{name} = {row[name]!r}: must be a text")
    if row.get("id") == "":
        raise ValueError("id is empty: leave it out, or give one")
    if not row.get("user"):
        raise ValueError("a task needs `user`, what the user says first")
    privileged = row.get("privileged", [])
    if not isinstance(privileged, list) or not all(isinstance(p, str) for p in privileged):
        raise ValueError(f"privileged = {privileged!r}: must be a list of texts")
    gold = row.get("gold", [])
    if not isinstance(gold, list) or not all(map(_is_gold, gold)):
        raise ValueError(
            "gold: must be a list of turns, each a text, a call {name, arguments}, or a list of "
            "calls"
        )
    return Task(
        row.get("id") or f"task-{number}",
        row.get("family", ""),
        row.get("split") or "train",
        {"row": row},
    )


def _is_gold(turn: Any) -> bool:
    calls = turn if isinstance(turn, list) else [turn]
    return isinstance(turn, str) or (
        bool(calls)
        and all(
            isinstance(call, dict)
            and isinstance(call.get("name"), str)
            and isinstance(call.get("arguments", {}), dict)
            for call in calls
        )
    )
