"""A model as the customer: tau2's user simulator against a real HTTP server on loopback."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from scripted_endpoint import KILL, STALL, Scripted, call, chat

from rti import (
    ConfigError,
    InfrastructureError,
    Message,
    RunError,
    Session,
    Step,
    ToolCall,
    Turn,
)
from rti.cli import main

pytest.importorskip("tau2", reason="needs the extra tau2")
from rti_tau2 import Tau2Environment
from rti_tau2.checks import official
from rti_tau2.reference import gold

KEY = "sk-not-a-real-key-4f1d"
STOP = "That works, thank you. ###STOP###"
LOOK_UP = Message(
    "assistant", tool_calls=(ToolCall("get_customer_by_phone", {"phone_number": "555-123-2002"}),)
)


def environment(server: Scripted, **options: Any) -> Tau2Environment:
    options = {"user_timeout_s": 2.0, "user_retries": 0, **options}
    return Tau2Environment(
        user="endpoint", user_model="loopback", user_base_url=server.url, **options
    )


def start(made: Tau2Environment, index: int = 0) -> Any:
    return asyncio.run(made.start(made.tasks("base")[index]))


def step(session: Session, message: Message) -> Step:
    return asyncio.run(session.step(Turn(0, (), (), (), message)))


def say(session: Session, text: str) -> str:
    return step(session, Message("assistant", text)).observations[0].content


def uses(name: str, **arguments: Any) -> Any:
    return chat(None, tool_calls=[call(name, json.dumps(arguments))])


def test_the_model_is_given_tau2s_prompt_and_the_conversation_from_its_side() -> None:
    with Scripted(["My data is broken.", "555-123-2002.", STOP]) as server:
        session = start(environment(server))
        assert session.opening[1].content == "My data is broken."
        step(session, LOOK_UP)
        assert say(session, "What is your number?") == "555-123-2002."
        assert say(session, "Try now.") == STOP
        assert session.ended == "user_stop"
        first, _, third = server.bodies
    assert first["model"] == "loopback"
    assert first["temperature"] == 0.0
    system = first["messages"][0]["content"]
    assert "You are playing the role of a customer" in system
    assert session.setting.task.user_scenario.instructions.known_info in system
    assert {tool["function"]["name"] for tool in first["tools"]} == {
        tool.name for tool in session.tools if tool.owner == "user"
    }
    assert [(m["role"], m["content"]) for m in third["messages"][1:]] == [
        ("user", "Hi! How can I help you today?"),
        ("assistant", "My data is broken."),
        ("user", "What is your number?"),
        ("assistant", "555-123-2002."),
        ("user", "Try now."),
    ]  # nothing of the agent's tools
    assert session.score() == official(session) == 0.0


def test_the_model_uses_its_phone() -> None:
    script = ["Hello.", uses("toggle_airplane_mode"), uses("run_speed_test"), "It is off.", STOP]
    with Scripted(script) as server:
        session = start(environment(server))
        assert say(session, "Please turn off airplane mode.") == "It is off."
        seen = [m for m in server.bodies[-1]["messages"] if m["role"] == "tool"]
        assert "now OFF" in seen[0]["content"]
        assert "Speed" in seen[1]["content"]
        calls = [c for m in session.log for c in getattr(m, "tool_calls", None) or []]
        assert [(c.name, c.requestor) for c in calls] == [
            ("toggle_airplane_mode", "user"), ("run_speed_test", "user"),
        ]  # fmt: skip
        assert say(session, "Goodbye.") == STOP
        assert session.score() == official(session)


def test_a_fork_says_again_what_was_said_and_asks_from_there_on() -> None:
    script = ["Hello.", uses("toggle_airplane_mode"), "It is off.", "No.", "Other.", STOP]
    with Scripted(script) as server:
        session = start(environment(server))
        step(session, LOOK_UP)
        say(session, "Please turn off airplane mode.")
        say(session, "Does it work?")
        digest, asked = session.state_digest(), len(server.asked)
        forks = [asyncio.run(session.fork(k)) for k in range(session.turns + 1)]
        assert len(server.asked) == asked
        assert forks[-1].state_digest() == digest
        assert len({fork.state_digest() for fork in forks}) == len(forks)
        assert forks[2].opening == session.opening
        assert say(forks[2], "Did that help?") == "Other."  # a new question, to the model
        assert server.bodies[-1]["messages"][-1]["content"] == "Did that help?"
        assert "It is off." in [m["content"] for m in server.bodies[-1]["messages"]]
        assert session.state_digest() == digest
        again = asyncio.run(forks[2].fork(forks[2].turns))  # a fork of a fork
        assert again.state_digest() == forks[2].state_digest()
        assert say(again, "Bye.") == STOP


def test_gold_wins_with_a_customer_that_does_as_it_is_told() -> None:
    """The scripted customer, put behind an HTTP server: the path of a real model, start to end."""
    scripted = Tau2Environment()
    played = asyncio.run(scripted.start(scripted.tasks("base")[0]))
    while not played.ended:
        step(played, gold(played))
    script: list[Any] = []
    for message in played.log[1:]:
        if message.role == "user" and message.tool_calls:
            (used,) = message.tool_calls
            script.append(uses(used.name, **used.arguments))
        elif message.role == "user":
            script.append(message.content)
    with Scripted(script) as server:
        session = start(environment(server))
        while not session.ended:
            step(session, gold(session))
        assert session.score() == official(session) == 1.0


@pytest.mark.parametrize("domain", ["retail", "airline"])
def test_a_desk_customer_has_no_tools(domain: str) -> None:
    with Scripted(["I want to cancel.", "###OUT-OF-SCOPE###"]) as server:
        session = start(environment(server, domain=domain))
        assert "tools" not in server.bodies[0]
        say(session, "Why?")
        assert session.ended == "user_stop"
        assert session.score() == official(session)


@pytest.mark.parametrize(
    "answer",
    [KILL, STALL, (500, {"error": "busy"}), (429, {"error": "slow"}), b"no json", "",
     chat(None, tool_calls=[call("run_speed_test", "{broken")])],
)  # fmt: skip
def test_a_fault_of_the_customers_model_is_no_failed_episode(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Scripted(["Hello.", answer]) as server:
        session = start(environment(server))
        began = time.monotonic()
        with pytest.raises(InfrastructureError, match="customer's model 'loopback'") as error:
            say(session, "What is wrong?")
        assert time.monotonic() - began < 10
        assert KEY not in str(error.value)
        sent = {name.lower(): value for name, value in server.asked[0][1].items()}
        assert sent["authorization"] == f"Bearer {KEY}"
        with pytest.raises(InfrastructureError):
            start(environment(server))


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_key_or_a_model_that_is_refused_ends_the_run(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Scripted([(status, {"error": {"message": f"bad key {KEY}"}})]) as server:
        with pytest.raises(RunError, match="user_key_env") as error:
            start(environment(server, user_retries=3))
        assert len(server.asked) == 1
        assert KEY not in str(error.value)
        assert error.value.__cause__ is None


def test_counts_what_was_asked_whatever_the_answer_is_worth() -> None:
    strange = chat("Yes.", usage=("many", None))
    with Scripted([(500, {}), "Hello.", "", "No.", strange]) as server:
        made = environment(server, user_retries=1)
        assert set(made.usage.values()) == {0.0}
        session = start(made)
        say(session, "Is it?")
        say(session, "Is it now?")
        assert made.usage == {
            "customer/requests": 5.0,
            "customer/prompt_tokens": 30.0,
            "customer/reply_tokens": 15.0,
            "customer/faults": 2.0,
        }
    assert Tau2Environment().usage == {}


def test_is_asked_as_often_as_allowed_and_no_more() -> None:
    with Scripted(["Hello.", (500, {})]) as server:
        made = environment(server, user_retries=5, user_max_requests=2)
        session = start(made)
        with pytest.raises(RunError, match=r"asked 2 times.*user_max_requests"):
            say(session, "Is it?")
        assert len(server.asked) == 2


def test_many_at_once_are_asked_as_often_as_allowed_and_no_more() -> None:
    async def all_(made: Tau2Environment) -> list[Any]:
        task = made.tasks("base")[0]
        return await asyncio.gather(*(made.start(task) for _ in range(12)), return_exceptions=True)

    with Scripted(["Hello."]) as server:
        ended = asyncio.run(all_(environment(server, user_max_requests=5, user_concurrency=4)))
        assert len(server.asked) == 5
    assert [type(e) for e in ended if isinstance(e, Exception)] == [RunError] * 7


def test_a_passing_fault_is_tried_again() -> None:
    with Scripted([(500, {}), "Hello.", "", "Yes."]) as server:
        session = start(environment(server, user_retries=1))
        assert session.opening[1].content == "Hello."
        assert say(session, "Is it?") == "Yes."
        assert len(server.asked) == 4


def test_a_customer_that_never_stops_using_tools_is_stuck() -> None:
    with Scripted(["Hello.", uses("check_status_bar")]) as server:
        session = start(environment(server))
        with pytest.raises(InfrastructureError, match="20 tool calls and said nothing"):
            say(session, "Look.")
        assert len(server.asked) == 21


def test_it_may_look_at_its_phone_before_it_speaks() -> None:
    with Scripted([uses("check_status_bar"), "No service.", "No."]) as server:
        session = start(environment(server))
        assert session.opening[1].content == "No service."
        say(session, "Is it on?")
        assert asyncio.run(session.fork(1)).state_digest() == session.state_digest()
        assert len(server.asked) == 3


def test_calls_made_together_stay_together_and_are_replayed_however_many() -> None:
    several = chat("Let me see.", tool_calls=[call("check_status_bar", "{}") for _ in range(9)])
    with Scripted(["Hello.", several, several, "Done.", STOP]) as server:
        session = start(environment(server))
        assert say(session, "Look.") == "Done."
        shown = [m for m in server.bodies[-1]["messages"] if m.get("tool_calls")]
        assert [(m["content"], len(m["tool_calls"])) for m in shown] == [("Let me see.", 9)] * 2
        assert asyncio.run(session.fork(1)).state_digest() == session.state_digest()


def test_an_empty_turn_of_the_agent_is_the_agents_fault() -> None:
    with Scripted(["Hello.", STOP]) as server:
        session = start(environment(server))
        for nothing in ("", "<think>hm", '<tool_call>{"name": "x"'):
            assert "plain words" in say(session, nothing)
        assert len(server.asked) == 1
        assert asyncio.run(session.fork(3)).state_digest() == session.state_digest()
        assert say(session, "Bye.") == STOP
        told = [m["content"] for m in server.bodies[-1]["messages"]]
        assert told[3] == "(no words)"
        assert all(told)


def test_an_error_too_many_ends_it_whatever_the_customer_says_then() -> None:
    wrong = chat(None, tool_calls=[call("no_such_tool", "{}") for _ in range(3)])
    with Scripted(["Hello.", wrong, STOP]) as server:
        session = start(environment(server, max_errors=3))
        say(session, "Look.")
        assert (session.ended, session.score()) == ("too_many_errors", 0.0)


def test_a_cancelled_question_is_waited_for_by_nobody() -> None:
    code = (
        "import asyncio, sys\n"
        "from rti_tau2.endpoint import in_thread\n"
        "async def main():\n"
        "    import time\n"
        "    try:\n"
        "        async with asyncio.timeout(0.2):\n"
        "            await in_thread(lambda: time.sleep(60))\n"
        "    except TimeoutError:\n"
        "        print('cancelled')\n"
        "asyncio.run(main())\n"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "cancelled"
    assert time.monotonic() - began < 30


def test_as_many_customers_are_asked_at_once_as_allowed() -> None:
    with Scripted(["Hello."], delay=0.05) as server:
        made = environment(server, user_concurrency=3)

        async def together() -> None:
            await asyncio.gather(*(made.start(task) for task in made.tasks("base")[:9]))

        asyncio.run(together())
        assert 1 < server.most_at_once <= 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"user_model": ""}, "needs user_model"),
        ({"user_base_url": ""}, "OPENAI_BASE_URL is not set"),
        ({"user_base_url": "ftp://here"}, "must be an address"),
        ({"user_base_url": "http://me:secret@here/v1"}, "without a user name, a password"),
        ({"user_base_url": "http://here/v1?api_key=secret"}, "without a user name, a password"),
        ({"user": "scripted"}, "are for user = 'endpoint'"),
    ],
)
def test_an_endpoint_that_cannot_be_is_refused(
    options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    given = {"user_model": "m", "user_base_url": "http://127.0.0.1:9/v1", **options}
    with pytest.raises(ConfigError, match=words) as error:
        Tau2Environment(**{"user": "endpoint", **given})
    assert "secret" not in str(error.value)


def test_the_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with Scripted(["Hello."]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        made = Tau2Environment(user="endpoint", user_model="m", user_retries=0)
        assert start(made).opening[1].content == "Hello."


@pytest.mark.parametrize(
    ("answer", "key", "code", "words"),
    [
        ("Please help me.", KEY, 0, "m opens a conversation in"),
        ("Please help me.", "", 0, "no key, CUSTOMER_KEY is not set"),
        ((401, {"error": {"message": f"bad key {KEY}"}}), KEY, 1, "refuses"),
        ((500, {"error": "busy"}), KEY, 1, "gave no answer"),
    ],
)
def test_the_doctor_asks_the_customer_once(
    answer: Any, key: str, code: int, words: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("CUSTOMER_KEY", key)
    recipe = Path(__file__).parents[2] / "recipes" / "tau2-airline-qwen3-8b-self.toml"
    with Scripted([answer]) as server:
        options = {
            "user": "endpoint", "user_model": "m", "user_base_url": server.url,
            "user_key_env": "CUSTOMER_KEY", "user_retries": 0,
        }  # fmt: skip
        changes = [f"--set=environment.{name}={value}" for name, value in options.items()]
        changes.append("--set=model.path=rti_pocket:base")  # that of the recipe is not here
        small = ["--only", "environment", "--tasks", "2", "--forks", "1"]
        assert main(["doctor", str(recipe), *small, *changes]) == code
        assert len(server.asked) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert words in said
    assert KEY not in said


def test_the_doctor_and_the_costs_ask_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = Path(__file__).parents[2] / "recipes" / "tau2-airline-qwen3-8b-self.toml"
    with Scripted(["Hello."]) as server:
        options = {"user": "endpoint", "user_model": "m", "user_base_url": server.url}
        changes = [f"--set=environment.{name}={value}" for name, value in options.items()]
        words = ["--offline", "--only", "config,environment", "--tasks", "2", "--forks", "1"]
        assert main(["doctor", str(recipe), *words, *changes]) == 0
        assert "its own stand-in, which asks none" in capsys.readouterr().out.replace("\n", " ")
        named = ",".join(f"{name}={value}" for name, value in options.items())
        small = ["--sessions", "2", "--rounds", "1"]
        assert main(["costs", f"tau2,domain=airline,{named}", *small]) == 0
        assert not server.asked


RECIPE = """
[environment]
use = "tau2"
domain = "airline"
user = "endpoint"
user_model = "customer"
user_base_url = "{url}"
user_retries = 0
user_timeout_s = 2
[policy]
use = "chat"
model = "agent"
base_url = "{url}"
[rollout]
max_turns = 4
retries = 0
[eval]
tasks = 3
trials = 2
[teacher]
timeout_s = 5
concurrency = 2
"""


def test_chat_models_on_both_sides_and_a_fault_that_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = set[str]()

    def answer(body: dict[str, Any]) -> Any:
        words = body["messages"][-1]["content"]
        if body["model"] == "agent":
            return "I am afraid that is not possible. Goodbye."
        if "How can I help" in words:
            return "Please cancel my flight."
        scenario = body["messages"][0]["content"]
        if not broken or scenario in broken:  # the first task that gets so far never gets further
            broken.add(scenario)
            return 500, {"error": "busy"}
        return "I see. ###STOP###"

    with Scripted([answer]) as server:
        recipe = tmp_path / "eval.toml"
        recipe.write_text(RECIPE.format(url=server.url), encoding="utf-8")
        code = main(["eval", str(recipe), "--out", str(tmp_path / "out")])
        asked = sum(body["model"] == "customer" for body in server.bodies)
    record = json.loads((tmp_path / "out" / "eval.json").read_text(encoding="utf-8"))
    assert record["usage"]["customer/requests"] == asked > 0
    assert record["benchmark"] == "τ²-airline, customer: customer/test"
    rows = list(record["tasks"].values())
    assert sorted(row.count(None) for row in rows) == [0, 0, 2]
    assert sum(record["faults"].values()) == 2
    assert all("customer's model" in words for words in record["faults"])
    idle = {t.id for t in Tau2Environment(domain="airline").tasks("test") if t.data.get("idle")}
    for task, row in record["tasks"].items():
        assert set(row) <= {None, task in idle}  # to refuse and do nothing is all that it did
    assert code == 0


def test_an_evaluation_ends_where_no_more_may_be_asked_and_goes_on_when_it_may(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(body: dict[str, Any]) -> Any:
        return "Goodbye." if body["model"] == "agent" else "That was all. ###STOP###"

    with Scripted([answer]) as server:
        recipe = tmp_path / "eval.toml"
        recipe.write_text(RECIPE.format(url=server.url), encoding="utf-8")
        out = tmp_path / "out"
        words = ["eval", str(recipe), "--out", str(out)]
        # Each of the six trials asks twice: for the opening, and what it says to "Goodbye.".
        assert main([*words, "--set=environment.user_max_requests=4"]) == 1
        assert "user_max_requests" in capsys.readouterr().err
        assert not (out / "eval.json").exists()
        assert main(words) == 0
        record = json.loads((out / "eval.json").read_text(encoding="utf-8"))
        customers = sum(body["model"] == "customer" for body in server.bodies)
    assert record["faults"] == {}
    assert all(None not in row for row in record["tasks"].values())
    before = customers - record["usage"]["customer/requests"]
    assert 2 <= before <= 4


def test_how_the_customer_is_served_may_change_and_who_it_is_may_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(body: dict[str, Any]) -> Any:
        return "Goodbye." if body["model"] == "agent" else "That was all. ###STOP###"

    with Scripted([answer]) as server:
        recipe = tmp_path / "eval.toml"
        recipe.write_text(RECIPE.format(url=server.url), encoding="utf-8")
        words = ["eval", str(recipe), "--out", str(tmp_path / "out"), "--set=eval.tasks=1"]
        assert main(words) == 0
        asked = len(server.asked)
        assert main([*words, "--set=environment.user_timeout_s=9"]) == 0
        assert len(server.asked) == asked  # all trials were there
        capsys.readouterr()
        assert main([*words, "--set=environment.user_model=other"]) == 2
        assert "user_model was 'customer' and is 'other'" in capsys.readouterr().err


def test_a_request_that_is_refused_is_not_sent_again() -> None:
    with Scripted([(400, {"error": "temperature"})]) as server:
        with pytest.raises(InfrastructureError, match="user_temperature = 0"):
            start(environment(server, user_retries=3))
        assert len(server.asked) == 1
