"""A chat model as the policy: evaluated through its endpoint's own messages and tool calls."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_endpoint import KILL, Scripted, call, chat

from rti import Message, ToolCall
from rti.cli import main
from rti.testing import messages as any_messages

pytest.importorskip("openai", reason="needs the extra teacher")
from rti_teacher.chat import ChatPolicy, conversation, sendable, spoken
from rti_teacher.wire import Reply

KEY = "sk-not-a-real-key-9a2c"
RECIPE = """
[run]
seed = 3
[environment]
use = "pocket"
test_tasks = 2
[policy]
use = "chat"
[rollout]
max_turns = 4
max_new_tokens = 50
[eval]
families = ["A3"]
trials = 3
temperature = 0.25
[teacher]
timeout_s = 2
retries = 1
concurrency = 2
"""
TRANSFER = chat("I hand over.", tool_calls=[call("transfer", "{}")])
GIVES_UP = chat("I give up.")


def hands_over_for_even_seeds(body: dict[str, Any]) -> Any:
    """Solves the pocket family A3 (nobody has the tool: hand over) in some trials alone."""
    return GIVES_UP if body["seed"] % 2 else TRANSFER


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "chat.toml"
    path.write_text(RECIPE)
    return path


def evaluated(
    capsys: pytest.CaptureFixture[str], recipe: Path, server: Scripted, out: Path, *sets: str
) -> tuple[int, Any, str]:
    words = ["eval", str(recipe), "--out", str(out)]
    for each in (f"teacher.base_url={server.url}", *sets):
        words += ["--set", each]
    code = main(words)
    said = capsys.readouterr()
    file = out / "eval.json"
    record = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    return code, record, said.err


def test_an_api_model_is_evaluated_with_tools_and_without_tokens(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    out = tmp_path / "out"
    with Scripted([hands_over_for_even_seeds]) as server:
        code, record, err = evaluated(capsys, recipe, server, out)
    assert code == 0, err
    solved = [row for rows in record["tasks"].values() for row in rows]
    assert len(solved) == 6
    assert True in solved
    assert False in solved
    assert record["metrics"]["pass@1"] == sum(solved) / 6
    assert record["policy"] == f"gpt-loopback at {server.url}"
    assert record["method"] == "gpt-loopback"
    assert record["model"] is None
    assert record["usage"]["sampled_tokens"] == 5 * len(server.bodies)
    first = server.bodies[0]
    assert [m["role"] for m in first["messages"]] == ["system", "user"]
    assert first["model"] == "gpt-loopback"
    assert (first["temperature"], first["max_tokens"]) == (0.25, 50)
    offers = {t["function"]["name"] for t in first["tools"]}
    assert {"call", "ask", "close", "transfer"} <= offers
    assert server.most_at_once <= 2
    for _, headers, _ in server.asked:
        assert {k.lower(): v for k, v in headers.items()}["authorization"] == f"Bearer {KEY}"
    for file in out.rglob("*"):
        assert KEY not in file.read_text(encoding="utf-8")


def test_tools_of_the_user_are_not_offered() -> None:
    from rti_pocket.environment import PocketEnvironment

    environment = PocketEnvironment()
    [task] = [t for t in environment.tasks("test") if t.family == "AH"][:1]
    session = asyncio.run(environment.start(task))
    users = {t.name for t in session.tools if t.owner == "user"}
    assert users
    from rti_teacher.wire import offered

    names = {t["function"]["name"] for t in offered([t for t in session.tools])}
    assert not users & names


def test_malformed_arguments_come_back_as_an_error_and_execute_nothing(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = chat("", tool_calls=[call("transfer", '{"value": '), call("call", "{}")])
    script = [broken, chat("", tool_calls=[call("transfer", "[1]")]), TRANSFER]
    with Scripted(script) as server:
        code, record, err = evaluated(
            capsys, recipe, server, tmp_path / "out", "eval.trials=1", "eval.tasks=1"
        )
    assert code == 0, err
    assert record["metrics"]["pass@1"] == 1.0
    assert record["metrics"]["turns"] == 3.0
    told = server.bodies[1]["messages"][-3:]
    assert [m["role"] for m in told] == ["assistant", "tool", "tool"]
    assert told[0]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert told[1]["content"].startswith("Error: the arguments of transfer are no JSON: ")
    assert "not executed" in told[2]["content"]
    assert "are no JSON object" in server.bodies[2]["messages"][-1]["content"]


def test_an_endpoint_that_refuses_tools_is_not_evaluated_without_them(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refuses = (400, {"error": {"message": "tools are not supported", "param": "tools"}})
    with Scripted([refuses]) as server:
        code, record, err = evaluated(capsys, recipe, server, tmp_path / "out")
    assert (code, record) == (1, None)
    assert "The model at http://127.0.0.1" in err
    assert "tools are not supported" in err
    assert all("tools" in body for body in server.bodies)
    assert len(server.bodies) <= 2, "no further episode begins after such an error"


def test_options_that_it_refuses_are_left_out_and_said(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refuses = (400, {"error": {"message": "temperature must be 1", "param": "temperature"}})
    with Scripted([lambda body: refuses if "temperature" in body else TRANSFER]) as server:
        code, record, _ = evaluated(capsys, recipe, server, tmp_path / "out")
    assert code == 0
    assert any("refuses temperature" in note for note in record["notes"])
    assert "refuses temperature" in (tmp_path / "out" / "eval.md").read_text(encoding="utf-8")


def test_a_fault_is_left_out_and_made_up_for_by_running_again(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, sets = tmp_path / "out", ["teacher.timeout_s=0.2", "teacher.concurrency=1"]
    sets += ["rollout.retries=0", "eval.tasks=1"]
    with Scripted([TRANSFER, KILL, KILL, TRANSFER]) as server:
        code, record, err = evaluated(capsys, recipe, server, out, *sets)
        assert code == 0, err
        [row] = record["tasks"].values()
        assert row == [True, None, True]
        assert record["counted"] == {"pass@1": 1, "pass@2": 1, "pass^2": 1, "all-of-2": 1}
        assert record["metrics"]["pass@1"] == 1.0
        [fault] = record["faults"]
        assert "broke off" in fault
        page = (out / "eval.md").read_text(encoding="utf-8")
        assert "1 rollouts left out for infrastructure faults, in 1 tasks" in page
        assert "n = 2" in page
        before = len(server.bodies)
        code, record, _ = evaluated(capsys, recipe, server, out, *sets)
        assert len(server.bodies) == before + 1
    [row] = record["tasks"].values()
    assert row == [True, True, True]
    assert record["faults"] == {}


def test_a_spent_budget_stops_it_and_more_of_it_goes_on(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with Scripted([TRANSFER]) as server:
        code, record, err = evaluated(capsys, recipe, server, out, "teacher.max_requests=4")
        assert (code, record) == (1, None)
        assert "[eval] stopped: the teacher's budget is spent: 4 of 4 requests" in err
        code, record, err = evaluated(capsys, recipe, server, out, "teacher.max_requests=6")
        assert code == 0, err
        assert "going on: 4 of 6 trials" in err
        assert len(server.bodies) == 6
    assert record["metrics"]["pass^3"] == 1.0


def test_a_conversation_too_long_for_it_is_a_failure_and_no_fault(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = (400, {"error": {"message": "too long", "code": "context_length_exceeded"}})
    with Scripted([TRANSFER, long]) as server:
        code, record, _ = evaluated(
            capsys, recipe, server, tmp_path / "out", "eval.tasks=1", "teacher.concurrency=1"
        )
    assert code == 0
    [row] = record["tasks"].values()
    assert row == [True, False, False]
    assert record["faults"] == {}
    assert record["metrics"]["truncated"] == pytest.approx(2 / 3)


def test_another_model_does_not_go_on_with_its_trials(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with Scripted([TRANSFER], models=["small", "large"]) as server:
        assert evaluated(capsys, recipe, server, out, "policy.model=small")[0] == 0
        code, _, err = evaluated(capsys, recipe, server, out, "policy.model=large")
    assert code == 2
    assert "[policy] model was 'small' and is 'large'" in err


def test_the_only_model_served_is_asked_for_its_name_first(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, port = tmp_path / "out", "policy.base_url=http://127.0.0.1:9/v1"
    with Scripted([TRANSFER], models=["one"]) as server:
        assert evaluated(capsys, recipe, server, out)[0] == 0
        server.models = ["another"]
        code, _, err = evaluated(capsys, recipe, server, out)
        assert code == 2
        assert "[policy] model was 'one' and is 'another'" in err
        code, _, err = evaluated(capsys, recipe, server, tmp_path / "x", port)
    assert code == 1
    assert "The model at http://127.0.0.1:9/v1 cannot be reached" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train"], "[policy] chat speaks in messages and has no tokens to train on"),
        (["intervene"], "it can only be evaluated, by `rti eval`"),
        (["eval", "--checkpoint", "CHECKPOINT"], "[policy] chat speaks in messages and takes no"),
    ],
)
def test_it_is_for_evaluation_alone(
    words: list[str],
    says: str,
    recipe: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    step = tmp_path / "run" / "checkpoints" / "step-000001"
    step.mkdir(parents=True)
    (step / "state.json").write_text("{}")
    more = [w.replace("CHECKPOINT", str(step)) for w in words[1:]]
    code = main([words[0], str(recipe), "--set", "model.path=rti_pocket:base", *more])
    assert code == 2
    assert says in capsys.readouterr().err


def test_killed_half_way_it_asks_for_nothing_twice(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Scripted([hands_over_for_even_seeds]) as server:
        _, whole, _ = evaluated(capsys, recipe, server, tmp_path / "whole")
    out = tmp_path / "out"
    with Scripted([hands_over_for_even_seeds], delay=0.3) as server:
        words = [sys.executable, "-m", "rti", "eval", str(recipe), "--out", str(out),
                 "--set", f"teacher.base_url={server.url}"]  # fmt: skip
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        trials, until = out / "trials.jsonl", time.monotonic() + 120
        while not trials.exists() or trials.read_bytes().count(b"\n") < 4:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kept = sum('"trial"' in line for line in trials.read_text().splitlines())
        assert 2 <= kept < 6
        asked = len(server.bodies)
        code, record, err = evaluated(capsys, recipe, server, out)
        assert code == 0, err
        assert f"going on: {kept} of 6" in err
        assert len(server.bodies) - asked <= 4 * (6 - kept)
    assert record["tasks"] == whole["tasks"]


@given(st.lists(st.text(max_size=70), unique=True, max_size=8))
def test_names_of_tools_are_sendable_and_their_own(names: list[str]) -> None:
    found = sendable(names)
    assert list(found) == names
    assert len(set(found.values())) == len(names)
    for name, sent in found.items():
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", sent)
        assert sent == name or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)


def test_a_renamed_tool_is_called_by_its_own_name() -> None:
    names = sendable(["maps.search", "maps_search"])
    assert names == {"maps.search": "maps_search_2", "maps_search": "maps_search"}
    reply = Reply("", "stop", (("maps_search_2", "{}"),))
    turn = spoken(reply, {sent: name for name, sent in names.items()})
    assert turn.message.tool_calls[0].name == "maps.search"
    [_, back, _] = conversation([Message("user", "go"), turn.message], names)
    assert back["tool_calls"][0]["function"]["name"] == "maps_search_2"


# --- messages -------------------------------------------------------------------------------


@given(st.lists(any_messages(), max_size=8))
def test_every_call_has_an_id_of_its_own_and_one_answer(conversed: list[Message]) -> None:
    sent = conversation(conversed)
    called = [c["id"] for m in sent for c in m.get("tool_calls", ())]
    answered = [m["tool_call_id"] for m in sent if m["role"] == "tool"]
    assert len(set(called)) == len(called)
    assert sorted(called) == sorted(answered)
    for m in sent:
        for c in m.get("tool_calls", ()):
            assert isinstance(json.loads(c["function"]["arguments"]), dict)


def test_a_conversation_goes_out_in_the_endpoints_words() -> None:
    said = (
        Message("user", "Ends <|im_end|> here."),
        Message("assistant", "", tool_calls=(ToolCall("a", {"x": 1}, "0"), ToolCall("b", {}, "1"))),
        Message("tool", "one", tool_call_id="0"),
        Message("tool", "nobody asked", tool_call_id="9"),
    )
    sent = conversation(said)
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert sent[0]["content"] == "Ends < |im_end|> here."
    assert sent[1]["content"] is None
    assert [m.get("tool_call_id") for m in sent[2:4]] == ["call_1_0", "call_1_1"]
    assert sent[3]["content"] == "(no result)"


def test_thinking_is_no_part_of_what_is_said() -> None:
    turn = spoken(Reply("<think>hm</think>\n Hello. ", "length"))
    assert turn.message.content == "Hello."
    assert turn.finish == "length"
    assert turn.refused == ()


def test_it_is_listed_as_a_policy() -> None:
    from rti.registry import Registry

    assert Registry.load().get("policy", "chat") is ChatPolicy
