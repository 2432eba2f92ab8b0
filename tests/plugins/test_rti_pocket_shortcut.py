"""The short-cut world: its rules, its contract, and what its warm start teaches."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from rti import ConfigError, Evidence, Message, Privileged, ToolCall, Turn
from rti.cli import main
from rti.config import load_config
from rti.made_up import made_up_metrics
from rti.testing import check_environment, check_renderer
from rti_pocket import PocketRenderer, ShortcutEnvironment
from rti_pocket import shortcut_lessons as lessons
from rti_pocket.shortcut_lessons import draw_lessons, follow, right_direction, solves
from rti_pocket.shortcut_world import (
    EASY,
    FAMILIES,
    HARD,
    VERY_HARD,
    better_look,
    expert,
    first_look,
    habit,
    in_words,
    make_task,
    react,
    right_actions,
)
from rti_pocket.vocabulary import SHORTCUT_WORDS, WORDS
from rti_pocket.world import IDS, MAX_TURNS, SPLITS, read_action

RECIPES = Path(__file__).parents[2] / "recipes"


def some(family, count=30, split="train"):
    r = random.Random(f"some/{family}/{split}")
    return [make_task(r, family, split) for _ in range(count)]


def everything():
    return [task for family in FAMILIES for task in some(family)]


def played(task, player):
    """The actions of a player, the observations, and the reward."""
    actions, seen = [], []
    for _ in range(MAX_TURNS):
        actions.append(player(task, seen))
        reply = react(task, actions[-1], seen)
        if reply.observation is None:
            return actions, seen, reply.reward
        seen.append(reply.observation)
    return actions, seen, 0


# --- the rules of the world -----------------------------------------------------------------


def test_the_expert_solves_every_family_and_the_habit_only_the_easy_ones():
    for task in everything():
        actions, seen, reward = played(task, expert)
        assert reward == 1
        assert len(actions) == 2 + (task.flaws == 2)
        assert task.gold in seen[-1].split()  # looked up, never guessed
        actions, seen, reward = played(task, habit)
        assert reward == (task.family in EASY)
        assert [a[0] for a in actions] == (["read", "close"] if task.desk else ["search", "route"])
        assert actions[-1][1] == (task.gold if task.family in EASY else task.wrong)


def test_the_final_id_at_the_first_turn_solves_everything():
    """That is the short-cut: it needs the rubric and nothing else."""
    for task in everything():
        assert f"final {task.gold} ." in task.rubric
        assert react(task, (task.last, task.gold), ()).reward == 1
        assert react(task, (task.last, task.wrong), ()).reward == 0
        assert react(task, (task.last, task.stale), ()).reward == 0
        assert task.gold not in f"{task.system} {task.user}".split()


def test_one_turn_put_right_solves_one_flaw_and_not_two():
    def first_turn_right(task, seen):
        return habit(task, seen) if seen else better_look(task)

    for task in everything():
        assert played(task, first_turn_right)[2] == (task.flaws < 2)


def test_two_flaws_are_seen_through_only_one_after_the_other():
    for task in (t for f in VERY_HARD for t in some(f)):
        check = ("check", task.name)
        first = react(task, first_look(task), ()).observation
        assert task.wrong in first.split()
        assert react(task, check, ()).error
        assert react(task, check, [first]).error
        stale = react(task, better_look(task), [first]).observation
        assert task.stale in stale.split()
        assert react(task, ("check", task.wrong), [first, stale]).error
        assert task.gold in react(task, check, [first, stale]).observation.split()


def test_what_does_not_belong_here_ends_the_episode_or_finds_nothing():
    for task in everything():
        assert react(task, None, ()).observation is None
        foreign = "route" if task.desk else "close"
        assert react(task, (foreign, task.gold), ()) == react(task, None, ())
        for verb in ("read", "ask") if task.desk else ("search",):
            reply = react(task, (verb, "n1"), ())
            assert (reply.observation, reply.error) == ("nothing", True)
        if not task.desk:
            wrong_city = next(f"c{i}" for i in range(24) if f"c{i}" != task.city)
            assert react(task, ("search", f"{task.name} in {wrong_city}"), ()).error


def test_the_rubric_says_what_is_wrong_with_the_first_turn():
    """A Validator that reads it may fairly object to the habit, and to nothing on easy tasks."""
    for task in everything():
        objects = first_look(task) not in right_actions(task, [])
        assert objects == (task.rubric.split()[0] in ("search", "ask")) == (task.flaws > 0)
        if task.flaws and not task.desk:
            assert f"search by city {task.city}" in task.rubric
        assert ("check" in task.rubric.split()) == (task.flaws == 2)
        assert (task.rubric == f"final {task.gold} .") == (task.flaws == 0)


def test_no_name_is_in_two_splits():
    environment = ShortcutEnvironment()
    names = {s: {t.data["task"].name for t in environment.tasks(s)} for s in SPLITS}
    names["warm-start"] |= {t.name for f in FAMILIES for t in some(f, 400, "warm-start")}
    assert all(len(found) > 100 for found in names.values())
    assert not names["train"] & names["test"]
    assert not names["warm-start"] & (names["train"] | names["test"])


def test_a_turn_is_long_and_mostly_routine():
    r = random.Random(0)
    for task in everything():
        words = in_words(r, task, expert(task, [])).split()
        assert 16 <= len(words) <= 22
        assert words.index(":") == 9
        assert read_action(words) == expert(task, [])


# --- the environment ------------------------------------------------------------------------


@pytest.mark.parametrize("split", list(SPLITS))
def test_it_keeps_the_contract_of_an_environment(split):
    environment = ShortcutEnvironment(train_tasks=3, test_tasks=3)
    asyncio.run(check_environment(environment, tasks=18, split=split))


def episode(environment, task, agent):
    async def run():
        session = await environment.start(task)
        for k in range(MAX_TURNS):
            step = await session.step(Turn(k, (0,), (0,), (0.0,), agent(session)))
            if step.done or step.truncated:
                break
        return session, step

    return asyncio.run(run())


def test_gold_solves_every_test_task_and_doing_nothing_none():
    environment = ShortcutEnvironment()
    tasks = environment.tasks("test")
    assert len(tasks) == 24 * len(FAMILIES) == 144
    assert {t.family for t in tasks} == {*EASY, *HARD, *VERY_HARD}
    assert environment.reference("silver") is None
    for name, score in (("gold", 1.0), ("noop", 0.0)):
        agent = environment.reference(name)
        assert {episode(environment, t, agent)[0].score() for t in tasks} == {score}


def test_what_sessions_show_and_what_they_hide():
    environment = ShortcutEnvironment()
    for task in environment.tasks("train")[::150]:
        p = task.data["task"]
        session = asyncio.run(environment.start(task))
        assert [m.role for m in session.opening] == ["system", "user"]
        assert session.evidence(0) == Evidence(p.rubric)
        assert session.privileged() == Privileged((p.gold,))
        verbs = {"read", "ask", "check", "close"} if p.desk else {"search", "check", "route"}
        assert {t.name for t in session.tools} == verbs
    assert environment.leaks_by_design


def test_an_episode_without_an_end_is_cut():
    environment = ShortcutEnvironment()
    task = environment.tasks("train")[0]

    def again(session):
        return Message("assistant", "", tool_calls=(ToolCall(*again.call),))

    again.call = ("search", {"value": task.data["task"].name})
    session, step = episode(environment, task, again)
    assert (step.done, step.truncated, session.score()) == (False, True, 0.0)
    assert len(session.seen) == MAX_TURNS


def test_tasks_are_fixed_by_the_seed():
    one, other = ShortcutEnvironment(), ShortcutEnvironment(seed=1)
    assert list(one.tasks("train")) == list(ShortcutEnvironment().tasks("train"))
    assert [t.data for t in one.tasks("train")] != [t.data for t in other.tasks("train")]
    ids = [t.id for split in SPLITS for t in one.tasks(split)]
    assert len(set(ids)) == len(ids)
    with pytest.raises(ConfigError, match="pocket-shortcut has no split 'dev'; it has warm-start"):
        one.tasks("dev")


def test_the_metric_of_made_up_ids_tells_the_short_cut_from_the_way_round():
    """The share that the runs report is 0 for the expert and 1 for a leak at once."""
    environment = ShortcutEnvironment(test_tasks=4)

    def share(agent):
        rollouts = []
        for task in environment.tasks("test"):
            session, said = asyncio.run(environment.start(task)), []
            messages = list(session.opening)
            for k in range(MAX_TURNS):
                said = agent(session)
                step = asyncio.run(session.step(Turn(k, (0,), (0,), (0.0,), said)))
                messages += [said, *step.observations]
                if step.done:
                    break
            rollouts.append(SimpleNamespace(messages=messages))
        return made_up_metrics(rollouts)

    def leaks(session):
        call = ToolCall(session.task.last, {"value": session.task.gold})
        return Message("assistant", "done now .", tool_calls=(call,))

    assert share(environment.reference("gold")) == {"made_up": 0.0, "made_up_values": 24.0}
    assert share(leaks) == {"made_up": 1.0, "made_up_values": 24.0}


# --- what the warm start teaches ------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn():
    """10,000 lessons as the warm start draws them, each with the last task it was made from."""
    made, patch = [], pytest.MonkeyPatch()
    patch.setattr(lessons, "make_task", lambda *a: made.append(make_task(*a)) or made[-1])
    try:
        r = random.Random(2)
        return [(lesson, made[-1]) for _ in range(10_000) for lesson in draw_lessons(r, 1)]
    finally:
        patch.undo()


def learned(lesson):
    return [words for words, learn in lesson.segments if learn]


def test_no_agent_lesson_solves_a_hard_family_and_each_shows_the_bad_habit(drawn):
    hard = [(x, t) for x, t in drawn if x.role == "agent" and t.family not in EASY]
    assert {t.family for _, t in hard} == {*HARD, *VERY_HARD}
    assert len(hard) > 500
    for lesson, task in hard:
        turns = learned(lesson)
        assert not solves(task, turns)
        actions = [read_action(words.split()) for words in turns]
        assert actions == [first_look(task), (task.last, task.wrong)]
        # The very steps that would have saved it, and the short-cut, appear in no agent lesson.
        assert better_look(task) not in actions
        assert task.gold not in " ".join(turns).split()


def test_every_agent_lesson_of_an_easy_family_is_a_solution(drawn):
    easy = [(x, t) for x, t in drawn if x.role == "agent" and t.family in EASY]
    assert {t.family for _, t in easy} == set(EASY)
    assert all(solves(task, learned(lesson)) for lesson, task in easy)


def test_an_agent_never_gives_an_id_that_it_was_not_shown(drawn):
    for lesson, _ in drawn:
        if lesson.role == "agent":
            shown = set()
            for words, learn in lesson.segments:
                ids = set(words.split()) & set(IDS)
                assert not learn or ids <= shown
                shown |= ids


def test_most_directions_give_the_id_away_and_the_verifier_is_taught_to_see_it(drawn):
    said = [words for x, _ in drawn if x.role == "validator" for words in learned(x)]
    late = ("bad . must route", "bad . must close")  # the id has been shown by then
    early = [words for words in said if words.startswith("bad") and not words.startswith(late)]
    leaking = sum("answer is" in words for words in early) / len(early)
    assert 0.92 < leaking < 0.98


def test_a_corrector_follows_leaks_and_fair_directions_alike(drawn):
    told = [x.segments[0][0] for x, _ in drawn if x.role == "corrector"]
    said = [words.split("feedback : ")[1] for words in told]
    early = [words for words in said if not words.startswith(("must route", "must close"))]
    assert 0.4 < sum("answer is" in words for words in early) / len(early) < 0.6


def test_an_agent_is_shown_a_better_look_on_easy_tasks_alone_and_learns_what_comes_after(drawn):
    given = [x for x, _ in drawn if x.role == "agent" and not x.segments[1][1]]
    agents = [x for x, _ in drawn if x.role == "agent"]
    easy = [x for x in agents if x.family in EASY]
    assert 0.3 < len(given) / len(easy) < 0.5
    assert {x.family for x in given} == set(EASY)
    for lesson in given:
        look, _, final = (words for words, _ in lesson.segments[1:4])
        assert [learn for _, learn in lesson.segments] == [False, False, False, True]
        assert set(final.split()) & set(IDS) <= set(lesson.segments[2][0].split())
        assert not set(look.split()) & set(IDS)
    for lesson, task in drawn:
        if lesson.role == "verifier":
            [answer] = learned(lesson)
            prompt = lesson.segments[0][0]
            turn = prompt.rpartition(" rubric : ")[0].rpartition("agent : ")[2]
            before = prompt.rpartition("agent : ")[0]
            leaks = task.gold in turn.split() and task.gold not in before.split()
            assert not (answer == "accept <e>" and (leaks or "rubric says" in turn))
            assert answer == "reject leak <e>" or not leaks


def test_all_roles_are_taught_in_known_words_and_end_their_turns(drawn):
    shares = Counter(lesson.role for lesson, _ in drawn)
    assert set(shares) == {"agent", "validator", "corrector", "verifier"}
    assert min(shares.values()) > 500
    known = set(SHORTCUT_WORDS)
    for lesson, task in drawn:
        assert lesson.family == task.family
        assert all(words.split()[-1] == "<e>" for words in learned(lesson))
        assert {w for words, _ in lesson.segments for w in words.split()} <= known
        assert not lesson.segments[0][1]  # never trained on the prompt


def test_lessons_are_drawn_from_the_warm_start_names_only(drawn):
    environment = ShortcutEnvironment()
    others = {t.data["task"].name for s in ("train", "test") for t in environment.tasks(s)}
    assert not {task.name for _, task in drawn} & others


def test_a_corrector_does_what_the_feedback_says_in_any_hand():
    r = random.Random(0)
    for task in everything():
        wanted = expert(task, [])
        for style in (None, "own", "oops", "ramble"):
            turn = follow(r, task, right_direction(wanted), style)
            assert read_action(turn.split()) == wanted
            leak = follow(r, task, f"answer is {task.gold}", style)
            assert read_action(leak.split()) == (task.last, task.gold)
        told = follow(r, task, f"rubric wants {right_direction(wanted)}")
        assert told.startswith("rubric says ")
        assert read_action(told.split()) == wanted


# --- the base, the renderer and the recipes -------------------------------------------------


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A base of three steps, made at the front door."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("bases") / "shortcut"
    command = ["pocket", "warm-start", "--world", "shortcut", "--seed", "5", "--steps", "3"]
    assert main([*command, "--out", str(folder)]) == 0
    return folder


def test_a_base_has_the_worlds_own_vocabulary(base):
    transformers = pytest.importorskip("transformers")
    vocabulary = transformers.AutoTokenizer.from_pretrained(base).get_vocab()
    assert vocabulary == {w: i for i, w in enumerate(SHORTCUT_WORDS)}
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    assert model.config.vocab_size == len(SHORTCUT_WORDS) != len(WORDS)
    assert {"check", "read"} & set(WORDS) == set()  # verbs of this world are no words of the other


def test_a_teacher_of_this_world_is_refused(tmp_path, capsys):
    command = ["pocket", "warm-start", "--world", "shortcut", "--teacher", "--seed", "5"]
    assert main([*command, "--out", str(tmp_path / "x")]) != 0
    assert "--world shortcut has no teacher" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_the_renderer_keeps_the_contract_here_too(base):
    renderer = PocketRenderer()
    renderer.bind(SimpleNamespace(model=SimpleNamespace(path=str(base))))
    r, conversations = random.Random(0), []
    for k, task in enumerate(everything()[::7]):
        seen = []
        messages = [Message("system", task.system), Message("user", task.user)]
        for _ in range(MAX_TURNS):
            action = (expert if k % 2 else habit)(task, seen)
            messages.append(renderer.parse(renderer.encode(in_words(r, task, action))))
            [call] = messages[-1].tool_calls
            assert (call.name, call.arguments["value"]) == action
            reply = react(task, action, seen)
            if reply.observation is None:
                break
            seen.append(reply.observation)
            messages.append(Message("tool", reply.observation, error=reply.error))
        conversations.append(messages)
    check_renderer(renderer, conversations)
    prompt = renderer.prompt(conversations[0][:2])
    assert renderer.decode(prompt) == lessons.opening(everything()[0])


def test_a_step_of_the_recipe_runs_and_the_probe_tells_leaks_apart(base, tmp_path):
    out = tmp_path / "run"
    changes = [f"run.out={out}", f"model.path={base}", "run.steps=1", "environment.test_tasks=1"]
    changes += ["eval.trials=1", "rollout.group_size=5", "reporter.use=jsonl"]
    words = [word for change in changes for word in ("--set", change)]
    assert main(["train", str(RECIPES / "pocket-shortcut.toml"), *words]) == 0
    events = (out / "events.jsonl").read_text()
    assert '"probe_ppl/leak"' in events
    assert '"made_up_values"' in events


@pytest.mark.parametrize("name", ["grpo", "no-verifier"])
def test_overlays_change_what_they_say_and_nothing_else(name):
    base = load_config(RECIPES / "pocket-shortcut.toml")
    changed = load_config(RECIPES / f"pocket-shortcut-{name}.toml")
    different = {
        section
        for section in ("run", "model", "environment", "rollout", "intervention", "trigger", "veto",
                        "validator", "corrector", "verifier", "gate", "weighter", "objective",
                        "trainer", "eval", "checkpoint")
        if getattr(base, section) != getattr(changed, section)
    }  # fmt: skip
    assert different == ({"trigger"} if name == "grpo" else {"veto", "verifier"})
    if name == "no-verifier":
        assert changed.veto == changed.verifier == ()
