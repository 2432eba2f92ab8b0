"""The pocket worlds: what the warm start teaches, and that the environment keeps its contract."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rti import CannotFork, ConfigError, Evidence, Message, Privileged, ToolCall, Turn
from rti.cli import main
from rti.testing import check_environment, check_renderer
from rti_pocket import PocketEnvironment, PocketRenderer, lessons
from rti_pocket.lessons import draw_lessons, solves
from rti_pocket.vocabulary import WORDS, build_tokenizer
from rti_pocket.world import (
    EASY,
    FAMILIES,
    HARD,
    MAX_TURNS,
    SPLITS,
    expert,
    habit,
    in_words,
    make_task,
    react,
    read_action,
)

# --- what the warm start teaches ------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn():
    """20,000 lessons as the warm start draws them, each with the last task it was made from."""
    made, patch = [], pytest.MonkeyPatch()
    patch.setattr(lessons, "make_task", lambda *a: made.append(make_task(*a)) or made[-1])
    try:
        r = random.Random(2)
        return [(lesson, made[-1]) for _ in range(20_000) for lesson in draw_lessons(r, 1)]
    finally:
        patch.undo()


def learned(lesson):
    return [words for words, learn in lesson.segments if learn]


def test_no_agent_lesson_solves_a_hard_family_and_each_shows_the_bad_habit(drawn):
    hard = [(x, t) for x, t in drawn if x.role == "agent" and t.family in HARD]
    assert {t.family for _, t in hard} == set(HARD)
    assert len(hard) > 500
    for lesson, task in hard:
        assert lesson.family == task.family
        turns = learned(lesson)
        assert not solves(task, turns)
        actions = [read_action(words.split()) for words in turns]
        wrong = ("route", task.wrong) if task.family == "BH" else ("transfer", "")
        assert actions[-1] == wrong
        # The very step that would have saved it appears in no agent lesson.
        right = (
            ("ask", task.fix) if task.family == "AH" else ("search", f"{task.name} in {task.city}")
        )
        assert right not in actions


def test_every_agent_lesson_of_an_easy_family_is_a_solution(drawn):
    easy = [(x, t) for x, t in drawn if x.role == "agent" and t.family in EASY]
    assert {t.family for _, t in easy} == set(EASY)
    assert all(solves(task, learned(lesson)) for lesson, task in easy)


def test_a_teacher_is_shown_solutions_and_mostly_another_hand():
    r = random.Random(3)
    drawn = draw_lessons(r, 4000, teacher=True)
    agent = [x for x in drawn if x.role == "agent"]
    assert {x.family for x in agent} == set(FAMILIES)
    opened = [words.split()[0] for x in agent for words in learned(x)]
    foreign = opened.count("dear") / len(opened)
    assert 0.5 < foreign < 0.7
    said = [words for x in drawn if x.role == "validator" for words in learned(x)]
    bad = [words for words in said if words.startswith("bad")]
    assert 0 < sum("answer is" in words for words in bad) / len(bad) < 0.08


def test_a_teacher_solves_every_family_in_its_lessons(monkeypatch):
    made = []
    monkeypatch.setattr(lessons, "make_task", lambda *a: made.append(make_task(*a)) or made[-1])
    r = random.Random(4)
    for _ in range(300):
        lesson = lessons.agent_lesson(r, teacher=True)
        assert solves(made[-1], learned(lesson))


def test_solves_knows_a_solution_from_a_failure():
    r = random.Random(0)
    for family in FAMILIES:
        for _ in range(20):
            task = make_task(r, family, "train")
            for player, wins in ((expert, True), (habit, family in EASY)):
                seen, turns = [], []
                for _ in range(MAX_TURNS):
                    action = player(task, seen)
                    turns.append(in_words(r, action))
                    reply = react(task, action)
                    if reply.observation is None:
                        break
                    seen.append(reply.observation)
                assert solves(task, turns) == wins


def test_all_roles_are_taught_in_known_words_and_end_their_turns(drawn):
    shares = Counter(lesson.role for lesson, _ in drawn)
    assert set(shares) == {"agent", "validator", "corrector", "verifier"}
    assert min(shares.values()) > 1000
    known = set(WORDS)
    for lesson, _ in drawn:
        assert learned(lesson)
        assert all(words.split()[-1] == "<e>" for words in learned(lesson))
        assert {w for words, _ in lesson.segments for w in words.split()} <= known
        assert not lesson.segments[0][1]  # never trained on the prompt


def test_lessons_are_drawn_from_the_warm_start_names_only(drawn):
    for lesson, task in drawn[:2000]:
        assert task.family == lesson.family
    names = {pair for _, task in drawn for pair in pairs(task)}
    others = {
        pair
        for split in ("train", "test")
        for task in PocketEnvironment().tasks(split)
        for pair in pairs(task.data["task"])
    }
    assert not names & others


def pairs(task):
    """The two-word names that a task was drawn with."""
    names = {name for name, _ in task.tools} | ({task.fix} - {"", "reboot"})
    return names | ({task.name} if " " in task.name else set())


def test_the_names_of_the_splits_are_disjoint():
    by_split = {
        split: {p for t in PocketEnvironment().tasks(split) for p in pairs(t.data["task"])}
        for split in SPLITS
    }
    assert set(by_split) == {"warm-start", "train", "test"}
    assert all(len(names) > 100 for names in by_split.values())
    assert not by_split["train"] & by_split["test"]
    assert not by_split["warm-start"] & (by_split["train"] | by_split["test"])


# --- the environment ------------------------------------------------------------------------


@pytest.mark.parametrize("split", list(SPLITS))
def test_it_keeps_the_contract_of_an_environment(split):
    environment = PocketEnvironment(train_tasks=3, test_tasks=3)
    asyncio.run(check_environment(environment, tasks=24, split=split))


def play(environment, task, agent, most=MAX_TURNS):
    async def run():
        session = await environment.start(task)
        for k in range(most):
            message = agent(session)
            step = await session.step(Turn(k, (0,), (0,), (0.0,), message))
            if step.done or step.truncated:
                break
        return session.score()

    return asyncio.run(run())


def test_gold_solves_every_test_task_and_doing_nothing_none():
    environment = PocketEnvironment()
    tasks = environment.tasks("test")
    assert len(tasks) == 48 * len(FAMILIES)
    gold, noop = environment.reference("gold"), environment.reference("noop")
    assert environment.reference("silver") is None
    assert {play(environment, t, gold) for t in tasks} == {1.0}
    assert {play(environment, t, noop) for t in tasks} == {0.0}


def test_tasks_are_fixed_by_the_seed():
    one, other = PocketEnvironment(), PocketEnvironment(seed=1)
    assert list(one.tasks("train")) == list(PocketEnvironment().tasks("train"))
    assert [t.data for t in one.tasks("train")] != [t.data for t in other.tasks("train")]
    ids = [t.id for split in SPLITS for t in one.tasks(split)]
    assert len(set(ids)) == len(ids)
    assert [t.family for t in one.tasks("test")][::48] == list(FAMILIES)
    with pytest.raises(
        ConfigError, match="pocket has no split 'dev'; it has warm-start, train, test"
    ):
        one.tasks("dev")


def test_the_two_stories():
    """The desk calls the user's tool and hands over; the map takes the first, partial match."""
    environment = PocketEnvironment()

    async def tell(family, actions):
        task = next(t for t in environment.tasks("train") if t.family == family)
        p = task.data["task"]
        session, seen = await environment.start(task), []
        for k, (verb, value) in enumerate(actions(p)):
            call = ToolCall(verb, {"value": value} if value else {}, id="7")
            message = Message("assistant", "so .", tool_calls=(call,))
            step = await session.step(Turn(k, (0,), (0,), (0.0,), message))
            seen += [(m.role, m.content, m.error, m.tool_call_id) for m in step.observations]
        return p, seen, session.score(), session

    fail = tell("AH", lambda p: [("call", p.fix), ("transfer", "")])
    _, seen, score, _ = asyncio.run(fail)
    assert (seen, score) == ([("tool", "denied user only", True, "7")], 0.0)
    p, seen, score, session = asyncio.run(tell("AH", lambda p: [("ask", p.fix), ("close", p.gold)]))
    assert (seen, score) == ([("tool", f"user did it code {p.gold}", False, "7")], 1.0)
    owners = {t.name: t.owner for t in session.tools}
    assert owners[p.fix] == "user"
    assert owners["ask"] == "agent"
    p, seen, score, _ = asyncio.run(tell("BH", lambda p: [("search", p.name), ("route", p.wrong)]))
    assert (seen[0][1], score) == (f"partial {p.other} id {p.wrong}", 0.0)
    by_city = tell("BH", lambda p: [("search", f"{p.name} in {p.city}"), ("route", p.gold)])
    p, seen, score, session = asyncio.run(by_city)
    assert (seen[0][1], score) == (f"exact {p.name} id {p.gold}", 1.0)
    assert session.privileged() == Privileged((p.gold,))
    exact = {"name": p.name, "search": ["search"], "commit": ["route"]}
    directions = {"no-exact-match": f"must search {p.name} in {p.city}"}
    assert session.evidence(0) == Evidence(
        p.rubric, {"exact_match": exact, "directions": directions}
    )
    assert p.gold in p.rubric  # on purpose: leaks_by_design
    assert environment.leaks_by_design


def test_forks_beyond_what_was_played_are_refused():
    environment = PocketEnvironment()
    session = asyncio.run(environment.start(environment.tasks("train")[0]))
    for k in (-1, 1, 9):
        with pytest.raises(CannotFork, match=f"turn {k}: this episode has 0 turns"):
            asyncio.run(session.fork(k))


# --- the grammar ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def renderer():
    pytest.importorskip("transformers")
    made = PocketRenderer()
    made.bind(SimpleNamespace(model=SimpleNamespace(path="rti_pocket:base")))
    return made


def test_the_renderer_keeps_the_contract(renderer):
    environment, r, conversations = PocketEnvironment(train_tasks=2), random.Random(0), []
    for task in environment.tasks("train"):
        p, seen = task.data["task"], []
        messages = [Message("system", p.system), Message("user", p.user)]
        for _ in range(MAX_TURNS):
            action = (expert if len(conversations) % 2 else habit)(p, seen)
            messages.append(renderer.parse(renderer.encode(in_words(r, action))))
            reply = react(p, action)
            if reply.observation is None:
                break
            seen.append(reply.observation)
            messages.append(Message("tool", reply.observation, error=reply.error))
        conversations.append(messages)
    check_renderer(renderer, conversations)


def test_what_is_said_and_done_is_told_apart(renderer):
    for words, content, calls in [
        ("need t1 t2 . ask t1 t2 <e>", "need t1 t2 .", [("ask", {"value": "t1 t2"})]),
        ("sorry . transfer <e>", "sorry .", [("transfer", {})]),
        ("search n1 n2 in c3 <e>", "", [("search", {"value": "n1 n2 in c3"})]),
        ("sorry . <e>", "sorry .", []),
        ("need t1 t2 . ask t1 t2", "need t1 t2 . ask t1 t2", []),  # cut short: nothing is done
        ("so . dear t1 <e>", "so . dear t1", []),
        ("<e>", "", []),
        ("", "", []),
    ]:
        ids = renderer.encode(words)
        message = renderer.parse(ids)
        assert (message.content, message.token_ids) == (content, ids)
        assert [(c.name, dict(c.arguments)) for c in message.tool_calls] == calls


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, len(WORDS) - 1), max_size=12))
def test_no_ids_break_the_parser_and_all_come_back_verbatim(renderer, ids):
    message = renderer.parse(ids)
    assert message.token_ids == tuple(ids)
    opening = [Message("system", "nav"), Message("user", "go to n1 n2 .")]
    before = renderer.prompt(opening)
    after = renderer.prompt([*opening, message, Message("tool", "nothing", error=True)])
    assert renderer.extends(before + tuple(ids), after)
    assert not renderer.extends(after, before)


# --- the base model -------------------------------------------------------------------------


def test_the_shipped_base_fits_vocabulary_and_tokenizer(renderer):
    transformers = pytest.importorskip("transformers")
    from rti import model_folder
    from rti_pocket.warmstart import new_model

    folder = model_folder("rti_pocket:base")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert (
        tokenizer.get_vocab()
        == build_tokenizer().get_vocab()
        == {w: i for i, w in enumerate(WORDS)}
    )
    base, fresh = transformers.AutoModelForCausalLM.from_pretrained(folder), new_model(0)
    assert {n: p.shape for n, p in base.named_parameters()} == {
        n: p.shape for n, p in fresh.named_parameters()
    }
    assert not [p for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pkl")]
    assert renderer.stop_ids == (WORDS.index("<e>"),) == (base.config.eos_token_id,)


def test_the_warm_start_is_fixed_by_its_seed(tmp_path, capsys):
    """As `rti pocket warm-start` does it, for a few steps."""
    pytest.importorskip("torch")

    def weights(name, seed):
        words = ["pocket", "warm-start", "--seed", str(seed), "--steps", "3"]
        assert main([*words, "--out", str(tmp_path / name)]) == 0
        return (tmp_path / name / "model.safetensors").read_bytes()

    assert weights("one", 5) == weights("two", 5) != weights("three", 6)
    assert "wrote" in capsys.readouterr().out
    files = {p.name for p in (tmp_path / "one").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files
