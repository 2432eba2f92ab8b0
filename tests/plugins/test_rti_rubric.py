from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

import rti_rubric
from rti import Diagnosis, Evidence, History, Message, PluginError, Tool, ToolCall, Turn
from rti.testing import Case, cases, check_validator
from rti_rubric import NEEDS_OBSERVATIONS, RULES, RubricValidator, rule

TOOLS = (
    Tool("reset_line", "Resets the line."),
    Tool("run_speed_test", "Measures the speed.", owner="user"),
)
SPEED_TEST = ToolCall("run_speed_test", {"line": "A"})


def turn(*calls: ToolCall, answers: tuple[Message, ...] | None = ()) -> Turn:
    message = Message("assistant", "ok", tool_calls=calls)
    return Turn(2, (1,), (2,), (-0.5,), message, observations=answers)


def answer(content: str, call: str | None = "0", error: bool = False) -> Message:
    return Message("tool", content, tool_call_id=call, error=error)


def history(*messages: Message, tools: tuple[Tool, ...] = TOOLS) -> History:
    return History((Message("user", "check my speed"), *messages), (1,), tools)


def judge(drawn: Turn, before: History | None = None, **options: Any) -> Diagnosis:
    validator = RubricValidator(**options)
    return asyncio.run(validator.validate(drawn, before or history(), Evidence()))


FAILED = answer("Error: tool not found", error=True)


def test_it_says_whether_its_rules_wait_for_observations():
    assert RubricValidator().needs_observations
    assert not RubricValidator(["unmet-rubric"]).needs_observations


def test_calling_the_users_tool_is_flagged_with_the_way_out() -> None:
    diagnosis = judge(turn(SPEED_TEST, answers=(FAILED,)))
    assert diagnosis.harmful
    assert (diagnosis.kind, diagnosis.raw) == ("foreign-tool", "foreign-tool")
    assert diagnosis.direction.startswith("run_speed_test is on the user's side")
    assert "ask the user" in diagnosis.direction


@pytest.mark.parametrize(
    "arguments", [{"tool": "run_speed_test"}, {"plan": {"steps": ["wait", "run_speed_test"]}}]
)
def test_naming_the_users_tool_in_an_argument_is_the_same(arguments: dict[str, Any]) -> None:
    diagnosis = judge(turn(ToolCall("reset_line", arguments), answers=(FAILED,)))
    assert (diagnosis.harmful, diagnosis.kind) == (True, "foreign-tool")


def test_a_tool_on_no_list_is_flagged_apart() -> None:
    diagnosis = judge(turn(ToolCall("teleport"), answers=(FAILED,)))
    assert (diagnosis.harmful, diagnosis.kind) == (True, "unknown-tool")
    assert "no tool teleport" in diagnosis.direction


@pytest.mark.parametrize(
    "drawn",
    [
        turn(SPEED_TEST, answers=(answer("90 Mbps"),)),  # it worked: no harm
        turn(ToolCall("reset_line"), answers=(FAILED,)),  # the agent's own tool may fail
        turn(ToolCall("reset_line", {"note": "then run_speed_test"}), answers=(FAILED,)),
        turn(answers=(FAILED,)),  # no call at all
        # Of two calls it is the agent's own that failed.
        turn(
            ToolCall("reset_line", id="0"),
            ToolCall("run_speed_test", id="1"),
            answers=(FAILED, answer("90 Mbps", "1")),
        ),
    ],
)
def test_other_turns_are_left_alone(drawn: Turn) -> None:
    assert judge(drawn) == Diagnosis(False)


def test_an_empty_tool_list_blames_nobody() -> None:
    assert not judge(turn(SPEED_TEST, answers=(FAILED,)), history(tools=())).harmful


def earlier(call: ToolCall, result: Message) -> tuple[Message, Message]:
    return Message("assistant", "", tool_calls=(call,)), result


RESET = ToolCall("reset_line", {"line": "A", "options": {"hard": True}})
BUSY = answer("Error: line busy", error=True)


def test_repeating_a_failed_call_is_flagged() -> None:
    before = history(*earlier(RESET, BUSY), *earlier(ToolCall("reset_line"), answer("done")))
    again = ToolCall("reset_line", {"options": {"hard": True}, "line": "A"}, id="7")
    diagnosis = judge(turn(again, answers=(answer("Error: line busy", "7", error=True),)), before)
    assert (diagnosis.harmful, diagnosis.kind) == (True, "repeated-failure")
    assert "reset_line has failed with the same arguments" in diagnosis.direction


@pytest.mark.parametrize(
    ("before", "call", "result"),
    [
        (earlier(RESET, BUSY), RESET, answer("done")),  # it worked this time
        (earlier(RESET, answer("done")), RESET, BUSY),  # it had worked before
        (earlier(RESET, BUSY), ToolCall("reset_line", {"line": "B"}), BUSY),  # other arguments
        ((), RESET, BUSY),  # the first time
    ],
)
def test_a_first_failure_and_a_working_repeat_are_left_alone(
    before: tuple[Message, ...], call: ToolCall, result: Message
) -> None:
    assert judge(turn(call, answers=(result,)), history(*before)) == Diagnosis(False)


def test_a_failure_belongs_to_the_call_it_answers() -> None:
    both = Message("assistant", "", tool_calls=(RESET, ToolCall("reset_line", id="1")))
    before = history(both, answer("done", "0"), answer("Error", "1", error=True))
    assert not judge(turn(RESET, answers=(BUSY,)), before).harmful


def test_a_later_failure_under_the_same_id_is_not_the_earlier_calls() -> None:
    # Call ids start anew in every turn: both calls are "0", and it is the second that failed.
    before = history(*earlier(RESET, answer("done")), *earlier(ToolCall("reset_line"), BUSY))
    assert not judge(turn(RESET, answers=(BUSY,)), before).harmful


def test_before_the_step_it_says_that_it_needs_observations() -> None:
    diagnosis = judge(turn(SPEED_TEST, answers=None))
    assert (diagnosis.harmful, diagnosis.kind, diagnosis.raw) == (
        False,
        "needs-observations",
        "foreign-tool",
    )
    both = judge(turn(RESET, answers=None), history(*earlier(RESET, BUSY)))
    assert both.raw == "foreign-tool, repeated-failure"
    # Without a call no observation could change the word.
    assert judge(turn(answers=None)) == Diagnosis(False)


@settings(deadline=None)
@given(cases())
def test_no_error_no_harm(case: Case) -> None:
    if not any(m.error for m in case.draft.observations or ()):
        validator = RubricValidator()
        assert not asyncio.run(validator.validate(case.draft, case.history, case.evidence)).harmful


def test_keeps_the_contract() -> None:
    check_validator(RubricValidator())


# ------------------------------------------------------------------ rules of one's own


@pytest.fixture
def empty_turn_rule() -> Iterator[str]:
    @rule("empty-turn")
    def empty_turn(turn: Turn, history: History, evidence: Evidence) -> Diagnosis | None:
        if not turn.message.content:
            return Diagnosis(True, "empty-turn", "Say something.")
        return None

    yield "empty-turn"
    del RULES["empty-turn"]


def test_a_rule_of_ones_own(empty_turn_rule: str) -> None:
    silent = Turn(0, (1,), (2,), (-0.5,), Message("assistant"), observations=())
    assert judge(silent, rules=[empty_turn_rule]).kind == "empty-turn"
    assert not judge(silent).harmful


def test_rules_are_asked_in_order_and_a_sure_one_outweighs_a_waiting_one(
    empty_turn_rule: str,
) -> None:
    message = Message("assistant", "", tool_calls=(SPEED_TEST,))
    unexecuted = Turn(0, (1,), (2,), (-0.5,), message)
    assert judge(unexecuted, rules=["foreign-tool", empty_turn_rule]).kind == "empty-turn"


def test_two_rules_of_one_name_are_an_error() -> None:
    with pytest.raises(PluginError, match=r"'foreign-tool'.*rti_rubric\.rules"):
        rule("foreign-tool")(lambda turn, history, evidence: NEEDS_OBSERVATIONS)


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (
            ["foreign-tol"],
            r"'foreign-tol' is none of 'foreign-tool', 'malformed-call', .*'unmet-rubric' "
            r"\(did you mean 'foreign-tool'\?\)",
        ),
        (["xyz"], "'xyz' is none of"),
        ([["a"]], "is none of"),
        ([], "rules = .*given"),
        ("foreign-tool", "a list of rule names"),
    ],
)
def test_unknown_rules_say_what_exists(rules: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RubricValidator(rules=rules)


def test_hook_and_import() -> None:
    assert rti_rubric.rti_validators() == {"rubric": RubricValidator}
    code = "import sys, rti_rubric; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
