"""An environment of one's own: tools from functions, tasks from a file, forks by replay."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from pathlib import Path
from typing import Any, Literal

import pytest
from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st

from rti import (
    CannotFork,
    ConfigError,
    InfrastructureError,
    Message,
    RtiError,
    RunError,
    ToolCall,
    Turn,
    option,
)
from rti.cli import main
from rti.environments import SimpleEnvironment
from rti.environments.digest import digest
from rti.environments.functions import BadCall, FunctionTool
from rti.testing import check_environment

POCKET_RECIPE = Path(__file__).parents[1] / "recipes" / "pocket-rti.toml"


@define
class Shelf:
    books: dict[str, int]
    lent: list[str] = field(factory=list)
    closed: int = 0

    def close(self) -> None:
        self.closed += 1


def search(shelf: Shelf, title: str, most: int = 5) -> list[str]:
    """Search the shelf
    by words of a title.

    Args:
        title: words of it,
            in any case.
        most: how many to list.

    Returns:
        titles.
    """
    return [b for b in shelf.books if title.lower() in b.lower()][:most]


async def lend(shelf: Shelf, title: str, to: Literal["adult", "child"] | None = None) -> str:
    """Lend a book."""
    if not shelf.books[title]:
        raise ValueError(f"{title} is out")
    shelf.books[title] -= 1
    shelf.lent.append(title)
    return f"lent {title}"


def ticket(shelf: Shelf) -> str:
    """Draw a number, which nobody can draw again."""
    return uuid.uuid4().hex


def secretly(shelf: Shelf) -> str:
    """Change the state in a way that does not show."""
    shelf.books[uuid.uuid4().hex] = 1
    return "done"


def breaks(shelf: Shelf) -> str:
    """Crash."""
    raise TypeError("a bug of the environment")


def find_glasses(shelf: Shelf) -> str:
    """The reader's own."""
    return "found"


@define
class Library(SimpleEnvironment):
    """A lending desk."""

    path: str = option("library.jsonl", "JSONL file of the tasks.")
    system = "You work at the desk of a library."
    tools = (search, lend, ticket, secretly, breaks)
    user_tools = (find_glasses,)

    def begin(self, row: Any) -> Shelf:
        return Shelf(row["books"])

    def outcome(self, state: Shelf, row: Any, answer: str) -> float:
        return float(state.lent == [row["wanted"]])

    def over(self, state: Shelf, row: Any) -> bool:
        return len(state.lent) > 1

    def reply(self, state: Shelf, row: Any, text: str) -> str | None:
        return "Which one?" if text.endswith("?") else None


ROWS: list[dict[str, Any]] = [
    {
        "id": "atlas",
        "user": "The old atlas, please.",
        "books": {"New Atlas": 1, "Old Atlas": 1},
        "wanted": "Old Atlas",
        "evidence": "The book that was asked for is lent, and no other.",
        "privileged": ["Old Atlas"],
        "gold": [
            {"name": "search", "arguments": {"title": "atlas"}},
            [{"name": "lend", "arguments": {"title": "Old Atlas"}}],
            "Here you are.",
        ],
    },
    {
        "id": "gone",
        "user": "Any book.",
        "split": "test",
        "system": "Be brief.",
        "books": {},
        "wanted": "x",
    },
]


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return written(tmp_path, ROWS)


def written(folder: Path, rows: list[Any]) -> Library:
    path = folder / "library.jsonl"
    path.write_text("\n\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return Library(path=str(path))


def turn(*calls: tuple[str, Any], say: str = "") -> Turn:
    made = tuple(ToolCall(name, arguments, str(i)) for i, (name, arguments) in enumerate(calls))
    return Turn(0, (0,), (0,), (0.0,), Message("assistant", say, tool_calls=made))


async def played(library: Library, *turns: Turn, task: int = 0) -> Any:
    split = ROWS[task].get("split", "train")
    [task_] = library.tasks(split)
    session = await library.start(task_)
    for each in turns:
        await session.step(each)
    return session


# --- the contract ---------------------------------------------------------------------------


def test_it_keeps_the_contract_of_an_environment(library: Library) -> None:
    asyncio.run(check_environment(library))
    asyncio.run(check_environment(library, split="test"))


def test_a_line_without_gold_is_named_and_takes_it_from_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way, as a single file: the doctor, and what it costs."""
    bare = {k: v for k, v in ROWS[0].items() if k != "gold"} | {"id": "bare"}
    wrong = {**ROWS[0], "id": "wrong", "gold": [{"name": "lned"}, "Here you are."]}
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        f"import sys\nsys.path.append({str(Path(__file__).parent)!r})\n"
        "from rti import hookimpl\nfrom test_environments_simple import Library\n"
        "@hookimpl\ndef rti_environments():\n    return {'mine': Library}\n"
    )
    for rows, level, words in (
        (
            [ROWS[0], bare],
            "warning",
            "1/2 tasks of split 'train' succeed, in at most 3 turns; of 1",
        ),
        ([ROWS[0], wrong], "error", "outcome 0; on the way: Error: there is no tool 'lned'"),
        ([bare], "warning", "`gold` in every line"),
    ):
        path = written(tmp_path, rows).path
        code = main([
            "--plugin", str(plugin), "doctor", str(POCKET_RECIPE), "--offline", "--json", "--only",
            "environment", "--set", "environment.use=mine", "--set", f"environment.path={path}",
            "--set", "rollout.families={}", "--set", "eval.families=[]",
        ])  # fmt: skip
        findings = json.loads(capsys.readouterr().out)["findings"]
        (gold,) = [f for f in findings if f["check"] == "gold"]
        assert gold["level"] == level
        assert words in " ".join([gold["text"], *gold["details"]])
        assert code == (level == "error")
        (cost,) = [f for f in findings if f["check"] == "cost"]
        assert "ms a turn" in cost["text"]
    costs = ["--plugin", str(plugin), "costs", f"mine,path={path}", "--sessions=2", "--rounds=1"]
    assert main(costs) == 0
    assert "mine has no gold agent" in capsys.readouterr().err
    written(tmp_path, [ROWS[0], bare])
    assert main(costs) == 1
    assert "task 'bare': its line has no `gold`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tools": search}, r"Odd\.tools must be a tuple of functions"),
        ({"reply": lambda *_: 5}, r"reply\(\) gave 5: wanted text or None"),
        ({"evidence": lambda *_: None}, r"evidence\(\) gave None: wanted text"),
        ({"begin": SimpleEnvironment.begin}, r"Odd: define begin\(self, row\)"),
        ({"outcome": SimpleEnvironment.outcome}, r"Odd: define outcome\(self, state, row, answer"),
    ],
)
def test_what_is_not_as_it_has_to_be_is_told(
    change: dict[str, Any], says: str, tmp_path: Path
) -> None:
    odd = define(type("Odd", (Library,), change))
    with pytest.raises(RtiError, match=says):
        asyncio.run(check_environment(odd(path=written(tmp_path, ROWS).path)))


def test_a_result_that_is_neither_text_nor_json_names_its_tool() -> None:
    def search(state: None) -> Any:
        """Look."""
        return {1, 2}

    with pytest.raises(
        InfrastructureError, match=r"tool search returned \{1, 2\}, which is neither"
    ):
        asyncio.run(FunctionTool.of(search, "agent")(None, {}))


@pytest.mark.parametrize("trick", ["ticket", "secretly"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_with_a_tool_that_cannot_be_lived_again_too(trick: str, place: int, tmp_path: Path) -> None:
    [row] = [dict(r) for r in ROWS[:1]]
    row["gold"] = [*row["gold"][:place], {"name": trick}, *row["gold"][place:]]
    library = written(tmp_path, [row])
    asyncio.run(check_environment(library))

    async def forks() -> list[bool]:
        session = await played(library, *(turn((t, {})) for t in ("search", trick, "search")))
        found = []
        for k in range(4):
            try:
                await session.fork(k)
                found.append(True)
            except CannotFork:
                found.append(False)
        return found

    assert asyncio.run(forks()) == [True, True, False, False]


def test_an_environment_that_forks_behind_what_it_cannot_repeat_is_found_out(
    tmp_path: Path,
) -> None:
    @define
    class Careless(Library):
        async def start(self, task: Any) -> Any:
            session: Any = await SimpleEnvironment.start(self, task)
            session.__class__ = Forgetful
            return session

    from rti.environments import SimpleSession

    class Forgetful(SimpleSession):
        __slots__ = ()

        async def fork(self, k: int) -> Any:
            fork: Any = await self.environment.start(self.task)
            for message, _ in self._past[:k]:
                await fork._execute(message)
            return fork

    row = {**ROWS[0], "gold": [{"name": "ticket"}, *ROWS[0]["gold"]]}
    careless = Careless(path=written(tmp_path, [row]).path)
    with pytest.raises(AssertionError, match="answers turn 0 differently"):
        asyncio.run(check_environment(careless))


# --- an episode -----------------------------------------------------------------------------


def test_an_episode(library: Library) -> None:
    async def work() -> None:
        session = await played(library)
        assert [m.content for m in session.opening] == [Library.system, ROWS[0]["user"]]
        assert session.evidence(0).text == ROWS[0]["evidence"]
        assert session.privileged().facts == ("Old Atlas",)
        step = await session.step(turn(("search", {"title": "ATLAS"}), ("find_glasses", {})))
        assert step.observations[0].content == '["New Atlas", "Old Atlas"]'
        assert step.observations[1].error
        assert "there is no tool 'find_glasses'" in step.observations[1].content
        assert [m.tool_call_id for m in step.observations] == ["0", "1"]
        step = await session.step(turn(say="Old or new?"))
        assert step.observations == (Message("user", "Which one?"),)
        assert not step.done
        await session.step(turn(("lend", {"title": "Old Atlas", "to": "child"})))
        assert session.score() == 1.0
        step = await session.step(turn(("lend", {"title": "New Atlas"})))
        assert step.done
        assert session.score() == 0.0
        with pytest.raises(RunError, match="is over"):
            await session.step(turn(say="Bye."))
        await session.close()
        await session.close()
        assert session.state.closed == 1

    asyncio.run(work())


def test_a_row_may_have_a_system_message_of_its_own(library: Library) -> None:
    session = asyncio.run(played(library, task=1))
    assert session.opening[0].content == "Be brief."


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("serch", {}, "there is no tool 'serch'. Did you mean 'search'?"),
        ("search", {}, "search needs title too"),
        ("search", {"titel": "x"}, "search has no argument 'titel'. Did you mean 'title'?"),
        ("search", {"title": 7}, "search: title = 7: wanted a string"),
        ("search", {"title": "x", "most": True}, "wanted a whole number"),
        ("search", {"title": "x", "most": "2"}, "wanted a whole number"),
        ("lend", {"title": "x", "to": "dog"}, "wanted one of 'adult', 'child' or left out"),
        ("lend", {"title": "Nothing"}, "Nothing"),
    ],
)
def test_what_a_model_gets_wrong_is_told_to_it(
    name: str, arguments: Any, says: str, library: Library
) -> None:
    async def work() -> None:
        session = await played(library)
        before = session.environment.digest(session.state)
        [told] = (await session.step(turn((name, arguments)))).observations
        assert told.error
        assert told.content.startswith("Error: ")
        assert says in told.content
        assert session.environment.digest(session.state) == before

    asyncio.run(work())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.text(max_size=6) | st.just("title"), VALUES, max_size=4))
def test_no_arguments_at_all_crash_it(arguments: dict[str, Any]) -> None:
    tool = FunctionTool.of(search, "agent")
    try:
        found = asyncio.run(tool(Shelf({"A": 1}), arguments))
    except BadCall:
        return
    assert isinstance(json.loads(found), list)


def test_a_bug_of_a_tool_is_a_crash_and_no_failure(library: Library) -> None:
    with pytest.raises(TypeError, match="a bug of the environment"):
        asyncio.run(played(library, turn(("breaks", {}))))


def test_the_file_is_not_changed_by_what_sessions_do(library: Library) -> None:
    async def work() -> None:
        first = await played(library, turn(("lend", {"title": "Old Atlas"})))
        first.row["books"].clear()
        assert (await played(library)).state.books == {"New Atlas": 1, "Old Atlas": 1}

    asyncio.run(work())


# --- tools ----------------------------------------------------------------------------------


def test_a_tool_is_described_by_annotations_and_docstring(library: Library) -> None:
    tools = {t.name: t for t in asyncio.run(played(library)).tools}
    assert tools["search"].description == "Search the shelf by words of a title."
    assert tools["search"].parameters == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "words of it, in any case."},
            "most": {"type": "integer", "description": "how many to list."},
        },
        "required": ["title"],
        "additionalProperties": False,
    }
    assert tools["lend"].parameters["properties"]["to"] == {
        "anyOf": [{"enum": ["adult", "child"]}, {"type": "null"}]
    }
    assert tools["lend"].parameters["required"] == ["title"]
    assert (tools["search"].owner, tools["find_glasses"].owner) == ("agent", "user")


def untyped(state, word):  # type: ignore[no-untyped-def]
    """Takes anything."""


def of_a_set(state: Any, words: set[str]) -> None:
    """Takes a set."""


def starred(state: Any, *words: str) -> None:
    """Takes many."""


def wordless(state: Any) -> None: ...


def forgets(title: str) -> str:
    """Find a title."""
    return title


def stateless() -> None:
    """Takes nothing."""


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (untyped, "tool untyped: word has no annotation"),
        (
            of_a_set,
            r"tool of_a_set, argument words: .* cannot have the type set\[str",
        ),
        (starred, r"tool starred: \*words says nothing to a model"),
        (wordless, "tool wordless: it has no docstring"),
        (stateless, "tool stateless: its first parameter must be the session's state"),
        (forgets, "tool forgets: its first parameter must be the session's state"),
    ],
)
def test_a_function_that_can_be_no_tool_says_why(function: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        FunctionTool.of(function, "agent")


# --- tasks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("", "there is no task in it"),
        ("[1]", ":1: a task must be a JSON object"),
        ("{}", ":1: a task needs `user`"),
        ('{"user": "a"}\n{"user": ', ":2: Expecting value"),
        ('{"user": "a", "id": 3}', ":1: id = 3: must be a text"),
        ('{"user": "a", "privileged": "b"}', "privileged = 'b': must be a list of texts"),
        ('{"user": "a", "gold": [{}]}', "gold: must be a list of turns"),
        ('{"user": "a", "id": "x"}\n{"user": "b", "id": "x"}', ":2: id 'x' stands in an earlier"),
        ('{"user": "a", "split": "dev"}', "no task is of split 'train'; there are dev"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(lines: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(lines)
    with pytest.raises(ConfigError) as caught:
        Library(path=str(path)).tasks("train")
    assert says in str(caught.value)
    with pytest.raises(ConfigError, match="Name a file with a JSON object a line"):
        Library(path=str(tmp_path / "nowhere.jsonl")).tasks("train")


def test_a_file_beside_the_plug_in_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rti.config import PluginSection
    from rti.registry import Registry

    (tmp_path / "tasks.jsonl").write_text('{"user": "hello"}')
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from attrs import define\nfrom rti import hookimpl\n"
        "from rti.environments import SimpleEnvironment\n"
        "@define\nclass Mine(SimpleEnvironment):\n    'Mine.'\n"
        "    def begin(self, row): ...\n    def outcome(self, state, row, answer): ...\n"
        "@hookimpl\ndef rti_environments():\n    return {'mine': Mine}\n"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    made = Registry.load(files=[plugin]).build(PluginSection("environment", "mine"))
    assert [t.id for t in made.tasks("train")] == ["task-1"]


# --- states ---------------------------------------------------------------------------------


def test_equal_states_have_equal_digests() -> None:
    assert digest({"a": 1, "b": {3, 4}}) == digest({"b": {4, 3}, "a": 1})
    assert digest(Shelf({"a": 1})) == digest(Shelf({"a": 1}))
    assert digest(random.Random(1)) == digest(random.Random(1))
    ring: list[Any] = [1]
    ring.append(ring)
    assert digest(ring) == digest(ring)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True), (1, 1.0), ("1", 1), ([1, 2], [2, 1]), ([1], (1,)), ({"a": 1}, {"a": 2}),
        (Shelf({"a": 1}), Shelf({"a": 1}, ["a"])), (random.Random(1), random.Random(2)),
        ({"a": None}, {}), ("a,b", ["a", "b"]),
    ],
)  # fmt: skip
def test_unequal_states_have_unequal_digests(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)


def test_a_state_that_cannot_be_seen_into_says_so() -> None:
    with pytest.raises(RunError, match="define digest"):
        digest({"a": object()})


def test_an_outcome_outside_its_range_is_an_error(library: Library) -> None:
    @define
    class Wrong(Library):
        def outcome(self, state: Any, row: Any, answer: str) -> float:
            return 2.0

    session = asyncio.run(played(evolve(Wrong(path=library.path))))
    with pytest.raises(RunError, match=r"gave 2\.0: wanted 0 to 1"):
        session.score()


@pytest.mark.parametrize("what", ["begin", "outcome", "over", "reply", "evidence"])
def test_a_mistake_in_ones_own_function_says_where_it_is(what: str, tmp_path: Path) -> None:
    def wrong(*_: Any) -> Any:
        return {}["wanted"]

    class Wrong(Library):
        pass

    setattr(Wrong, what, wrong)
    written(tmp_path, ROWS)
    environment = Wrong(path=str(tmp_path / "library.jsonl"))

    async def live() -> None:
        session = await environment.start(environment.tasks("train")[0])
        await session.step(turn(("search", {"title": "atlas"})))
        await session.step(turn(say="Here you are."))
        session.evidence(0)
        session.score()

    words = (
        rf"task 'atlas': {what}\(\) raised KeyError: 'wanted' \(test_environments_simple.py, line"
    )
    with pytest.raises(InfrastructureError, match=words):
        asyncio.run(live())
