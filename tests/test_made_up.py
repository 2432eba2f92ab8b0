"""Final ids that nothing had shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rti import Message, Rollout, Task, ToolCall
from rti.made_up import final_ids, made_up_metrics


def said(*parts: tuple[str, str] | ToolCall) -> list[Message]:
    """Messages: (role, text), or a call by the assistant."""
    return [
        Message("assistant", "", tool_calls=(p,)) if isinstance(p, ToolCall) else Message(*p)
        for p in parts
    ]


def close(value: object) -> ToolCall:
    return ToolCall("close", {"value": value})


def test_an_id_from_an_observation_is_no_invention() -> None:
    shown = said(("user", "line 4 broken"), ("tool", "done code k12"), close("k12"))
    assert final_ids(shown) == [("k12", False)]
    unseen = said(("user", "line 4 broken"), ("tool", "done code k12"), close("k1"))
    assert final_ids(unseen) == [("k1", True)]  # k12 does not show k1


def test_what_the_assistant_said_itself_shows_nothing() -> None:
    claimed = said(("user", "help"), ("assistant", "your code is k12"), close("k12"))
    assert final_ids(claimed) == [("k12", True)]
    repeated = said(("user", "help"), close("k12"), ("tool", "no such code"), close("k12"))
    assert final_ids(repeated) == [("k12", True)]


def test_what_comes_after_the_last_call_shows_nothing() -> None:
    assert final_ids(said(("user", "help"), close("k12"), ("tool", "closed k12"))) == [
        ("k12", True)
    ]


@pytest.mark.parametrize("value", ["n1 n2 in c4", "reboot", "", 12, 3.5, None, True])
def test_prose_and_numbers_are_no_ids(value: object) -> None:
    assert final_ids(said(("user", "help"), close(value))) == []


def test_values_are_found_at_any_depth_once_each_and_without_regard_to_case() -> None:
    call = ToolCall("book", {"user": "mia_li_3668", "legs": [{"flight": "HAT136"}, "hat136"]})
    found = final_ids(said(("user", "I am mia_li_3668, flight hat136 please"), call))
    assert found == [("mia_li_3668", False), ("HAT136", False), ("hat136", False)]


def test_a_users_own_call_shows_its_values() -> None:
    theirs = Message("user", "", tool_calls=(ToolCall("toggle", {"line": "L1001"}),))
    assert final_ids([theirs, *said(close("L1001"))]) == [("L1001", False)]


def test_the_share_is_over_values_and_absent_without_any() -> None:
    def rollout(*parts: tuple[str, str] | ToolCall) -> Rollout:
        return Rollout(Task("t"), 0, messages=tuple(said(*parts)))

    rows = [
        rollout(("user", "k1 and k2"), close(["k1", "k2", "k3"])),
        rollout(("user", "help"), close("k4")),
        rollout(("user", "help")),
    ]
    assert made_up_metrics(rows) == {"made_up": 0.5, "made_up_values": 4.0}
    assert made_up_metrics(rows[2:]) == {"made_up_values": 0.0}


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=12))
def test_any_text_is_judged(before: str, after: str, value: str) -> None:
    found = final_ids(said(("user", f"{before} {value} {after}"), close(value)))
    assert all(not made for _, made in found)  # it stands there, whatever it is
