"""The rules that read an environment's declared facts, and the one that reads the turn's text."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rti import Diagnosis, Evidence, History, Message, PluginError, RequestKey, Tool, ToolCall, Turn
from rti_rubric import RubricValidator

SEARCH, ROUTE = Tool("find_place"), Tool("navigate")
PLACES = "1. 东涌文化广场 2. 东涌凤凰广场"
EXACT = {"exact_match": {"name": "东涌广场", "search": ["find_place"], "commit": ["navigate"]}}
FIRST = ToolCall("navigate", {"place": 1})


def turn(*calls: ToolCall, content: str = "", index: int = 1) -> Turn:
    message = Message("assistant", content, tool_calls=calls)
    return Turn(index, (1,), (2,), (-0.5,), message, observations=())


def history(*messages: Message) -> History:
    return History((Message("user", "to 东涌广场"), *messages), (1,), (SEARCH, ROUTE))


def searched(*answers: str, error: bool = False, at: str = "0") -> tuple[Message, ...]:
    asked = Message("assistant", "", tool_calls=(ToolCall("find_place", {"q": "东涌广场"}, at),))
    said = [Message("tool", text, tool_call_id=at, error=error) for text in answers]
    return (asked, *said)


def judge(
    drawn: Turn, before: History, facts: Mapping[str, Any], rules: list[str] | None = None
) -> Diagnosis:
    validator = RubricValidator() if rules is None else RubricValidator(rules=rules)
    return asyncio.run(validator.validate(drawn, before, Evidence("", facts)))


# ------------------------------------------------------------------------ no-exact-match


def test_taking_the_first_of_the_wrong_results_is_flagged() -> None:
    diagnosis = judge(turn(FIRST), history(*searched(PLACES)), EXACT)
    assert (diagnosis.harmful, diagnosis.kind) == (True, "no-exact-match")
    assert "search again" in diagnosis.direction
    assert "东涌" not in diagnosis.direction


@pytest.mark.parametrize(
    ("drawn", "before", "facts"),
    [
        (turn(FIRST), searched(PLACES + " 3. 东涌 广场"), EXACT),  # there is one, spaced
        (turn(FIRST), searched("东涌广场店"), EXACT),  # inside a longer name: not sure
        (turn(FIRST), searched(PLACES), {}),  # the environment declares nothing
        (turn(FIRST), searched("no result", error=True), EXACT),
        (turn(FIRST), searched(), EXACT),
        (turn(FIRST), (), EXACT),  # no search at all
        (turn(ToolCall("find_place", {"q": "东涌广场 香港"})), searched(PLACES), EXACT),
        (turn(content="Which city?"), searched(PLACES), EXACT),
        (turn(FIRST), (*searched(PLACES), *searched("东涌广场")), EXACT),  # the latest counts
        (turn(FIRST), (*searched(PLACES), *searched("none", error=True)), EXACT),
    ],
)
def test_what_may_be_right_is_left_alone(
    drawn: Turn, before: tuple[Message, ...], facts: Mapping[str, Any]
) -> None:
    assert judge(drawn, history(*before), facts) == Diagnosis(False)


def test_an_answer_belongs_to_the_turn_before_it() -> None:
    # Call ids start anew in each turn: the exact hit was another tool's answer.
    other = Message("assistant", "", tool_calls=(ToolCall("news", {}, "0"),))
    news = Message("tool", "东涌广场 opens", tool_call_id="0")
    assert judge(turn(FIRST), history(*searched(PLACES), other, news), EXACT).harmful


# -------------------------------------------------------------------------- unmet-rubric


def rubrics(*given: dict[str, Any]) -> dict[str, Any]:
    return {"rubrics": list(given)}


def test_the_first_unmet_rubric_of_this_turn_is_flagged() -> None:
    facts = rubrics(
        {"name": "a", "met": True, "by_turn": 1},
        {"name": "b", "met": False, "by_turn": 0, "hint": "no"},
        {"name": "c", "met": False, "by_turn": 1, "hint": "Settle c first."},
        {"name": "d", "met": False, "by_turn": 1},
    )
    diagnosis = judge(turn(), history(), facts)
    assert diagnosis == Diagnosis(True, "unmet-rubric", "Settle c first.", "unmet-rubric")
    nameless = judge(turn(), history(), rubrics({"name": "the answer", "met": False, "by_turn": 1}))
    assert nameless.harmful
    assert "the answer" not in nameless.direction


@pytest.mark.parametrize(
    "facts",
    [
        {},
        rubrics(),
        rubrics({"name": "a", "met": False}),  # blames no turn
        rubrics({"name": "a", "met": False, "by_turn": 2}),
        rubrics({"name": "a", "met": True, "by_turn": 1}),
    ],
)
def test_met_rubrics_and_those_of_other_turns_are_silent(facts: Mapping[str, Any]) -> None:
    assert judge(turn(), history(), facts) == Diagnosis(False)


# --------------------------------------------------------------------- premature-handoff


def test_a_handoff_is_flagged_only_where_it_cannot_succeed() -> None:
    away = turn(ToolCall("transfer"))
    for allowed, harmful in ((False, True), (True, False)):
        facts = {"handoff": {"tools": ["transfer"], "allowed": allowed}}
        assert judge(away, history(), facts).harmful is harmful
        assert not judge(turn(FIRST), history(), facts).harmful
    assert not judge(away, history(), {}).harmful


def test_an_environment_may_word_the_directions() -> None:
    handoff = {"tools": ["transfer"], "allowed": False}
    facts = EXACT | {"handoff": handoff, "directions": {"no-exact-match": "must search by city"}}
    assert judge(turn(FIRST), history(*searched(PLACES)), facts).direction == "must search by city"
    away = judge(turn(ToolCall("transfer")), history(), facts)
    assert away.direction.startswith("Do not hand over")


def test_the_direction_about_a_users_tool_names_it() -> None:
    called = ToolCall("call", {"value": "reset {x}"}, "0")
    refused = Message("tool", "denied", tool_call_id="0", error=True)
    drawn = Turn(
        0, (1,), (2,), (-0.5,), Message("assistant", "", tool_calls=(called,)),
        observations=(refused,),
    )  # fmt: skip
    known = History((), (1,), (Tool("call"), Tool("reset {x}", owner="user")))
    facts = {"directions": {"foreign-tool": "ask user to run {tool}"}}
    assert judge(drawn, known, facts).direction == "ask user to run reset {x}"
    assert judge(drawn, known, {}).direction.startswith("reset {x} is on the user's side")


@pytest.mark.parametrize(
    "facts",
    [
        {"rubrics": "all"},
        {"rubrics": ["wifi"]},
        {"rubrics": [{"name": "a", "met": 1}]},
        {"exact_match": "东涌广场"},
        {"exact_match": {"name": "东涌广场", "search": "find_place", "commit": []}},
        {"handoff": {"tools": ["transfer"]}},
        {"handoff": {"tools": "transfer", "allowed": False}},
        {"directions": "search again"} | EXACT,
        {"directions": {"no-exact-match": 7}} | EXACT,
    ],
)
def test_facts_of_another_form_name_the_environment(facts: Mapping[str, Any]) -> None:
    with pytest.raises(PluginError, match=rf"environment's evidence\.facts\['{next(iter(facts))}'"):
        judge(turn(FIRST), history(*searched(PLACES)), facts)


# ------------------------------------------------------------------------ malformed-call

ONLY = ["malformed-call"]


@pytest.mark.parametrize(
    "content",
    [
        'Let me see. <tool_call>\n{"name": "find_place", "arguments": {\n</tool_call>',
        '<tool_call>{"name": "find_place"',
        "<function=find_place>\n<parameter=q>\nx",
        '[TOOL_CALLS] [{"name": "find_place"}]',
        '{"name": "find_place", "arguments": {"q": "x"}}',
        'Looking:\n```json\n{"name": "find_place", "parameters": {}}\n```',
    ],
)
def test_a_call_that_did_not_parse_is_flagged_if_asked_for(content: str) -> None:
    assert judge(turn(content=content), history(), {}, ONLY).kind == "malformed-call"
    assert not judge(turn(content=content), history(), {}).harmful  # not a default rule
    assert not judge(turn(FIRST, content=content), history(), {}, ONLY).harmful
    no_tools = History((Message("user", "hi"),), (1,))
    assert not judge(turn(content=content), no_tools, {}, ONLY).harmful


@settings(deadline=None)
@given(st.text(st.characters(exclude_characters="<[{")))
def test_plain_words_are_no_call(content: str) -> None:
    assert not judge(turn(content=content), history(), {}, ONLY).harmful


def test_words_about_calls_are_no_call() -> None:
    content = 'I would call {name}, with arguments. Your file says {"id": 3, "name": "x"}.'
    assert not judge(turn(content=content), history(), {}, ONLY).harmful


# ------------------------------------------------- on rollouts of the pocket base model


def flags(episode: Any, validator: RubricValidator) -> bool:
    """Whether any turn of a played episode is flagged."""
    from rti.rollout import messages_before

    rollout, session = episode.rollout, episode.session
    for k, played in enumerate(rollout.turns):
        before = tuple(messages_before(session, rollout.turns[:k]))
        seen = History(before, played.prompt_ids, tuple(session.tools))
        if asyncio.run(validator.validate(played, seen, session.evidence(k))).harmful:
            return True
    return False


def test_on_real_pocket_rollouts_no_success_is_flagged(pocket: Any) -> None:
    run = pocket("rollout.max_new_tokens=20", trains=False)
    actor, found = run.collector.actor, run.environment.tasks("train")
    tasks = [
        task
        for family in ("BH", "B1", "B2", "B3", "A3", "AH")
        for task in [t for t in found if t.family == family][:8]
    ]
    episodes = [actor.episode(t, 0, RequestKey(3, 0, t.id)) for t in tasks]
    played = asyncio.run(run.policy.gather(episodes))
    validator = RubricValidator(rules=["no-exact-match", "premature-handoff"])
    of = {family: [e for e in played if e.rollout.task.family == family] for family in ("BH", "AH")}
    flagged = [e for e in played if flags(e, validator)]
    assert flagged
    assert not [e for e in flagged if e.rollout.success]
    # The bad habit of BH is just this: it takes the branch that the search returned.
    failed = [e for e in of["BH"] if not e.rollout.success]
    assert len([e for e in failed if e in flagged]) > len(failed) / 2
    # What looks like it and is right (B2 takes any branch, A3 must hand over) is left alone.
    assert {e.rollout.task.family for e in flagged} <= {"BH", "AH", "B1"}
