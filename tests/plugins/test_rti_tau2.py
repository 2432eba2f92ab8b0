"""τ²-bench's telecom through the door of `rti`: reward, forks, customer, evidence."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rti import (
    CannotFork,
    ConfigError,
    Environment,
    InfrastructureError,
    Message,
    RunError,
    Session,
    Step,
    ToolCall,
    Turn,
)
from rti.testing import check_environment

pytest.importorskip("tau2", reason="needs the extra tau2")
from rti_tau2 import Tau2Environment
from rti_tau2.checks import official
from rti_tau2.customer import Scenario, first_person
from rti_tau2.reference import ask
from rti_tau2.session import Tau2Session
from rti_tau2.telecom import Request, TelecomCustomer, find_requests
from rti_tau2.upstream import load

ENVIRONMENT = Tau2Environment()
SAY = {
    "goodbye": Message("assistant", "Is there anything else I can help you with?"),
    "status": Message("assistant", "Please check your status bar."),
    "flip": Message("assistant", "Please toggle airplane mode."),
    "speed": Message("assistant", tool_calls=(ToolCall("run_speed_test"),)),
    "phone": Message(
        "assistant",
        tool_calls=(ToolCall("get_customer_by_phone", {"phone_number": "555-123-2002"}),),
    ),
    "refuel": Message(
        "assistant",
        tool_calls=(
            ToolCall("refuel_data", {"customer_id": "C1001", "line_id": "L1002", "gb_amount": 2.0}),
        ),
    ),
    # A new bill: the id is made up by the simulator.
    "other": Message(
        "assistant",
        tool_calls=(
            ToolCall("refuel_data", {"customer_id": "C1002", "line_id": "L1004", "gb_amount": 1.0}),
            ToolCall("get_bills_for_customer", {"customer_id": "C1002"}, "1"),
        ),
    ),
    "human": Message(
        "assistant", tool_calls=(ToolCall("transfer_to_human_agents", {"summary": "x"}),)
    ),
    "handover": Message("assistant", "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON."),
}


def start(index: int = 0, environment: Tau2Environment = ENVIRONMENT) -> Tau2Session:
    return asyncio.run(environment.start(environment.tasks("base")[index]))


def step(session: Session, message: Message) -> Step:
    return asyncio.run(session.step(Turn(0, (), (), (), message)))


def say(session: Session, text: str) -> str:
    return step(session, Message("assistant", text)).observations[0].content


def play(session: Tau2Session, agent: Callable[[Session], Message], limit: int = 30) -> Tau2Session:
    for _ in range(limit):
        if not session.ended:
            step(session, agent(session))
    return session


def used(session: Tau2Session) -> list[Any]:
    """The calls that the customer made."""
    return [call for m in session.log if m.role == "user" for call in m.tool_calls or []]


# The environment


def test_hooks_import_nothing_heavy() -> None:
    code = (
        "import sys, rti_tau2; rti_tau2.rti_environments()\n"
        "print(sorted({'tau2', 'litellm', 'torch'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_protocols_and_splits() -> None:
    assert isinstance(ENVIRONMENT, Environment)
    assert isinstance(start(), Session)
    sizes = {split: len(ENVIRONMENT.tasks(split)) for split in ("train", "test", "base", "small")}
    assert sizes == {"train": 74, "test": 40, "base": 114, "small": 20}
    upstream = load().registry.get_tasks_loader("telecom")("test")
    assert [t.id for t in upstream] == [t.data["tau2_id"] for t in ENVIRONMENT.tasks("test")]
    full = ENVIRONMENT.tasks("full")
    assert len({task.id for task in full}) == len(full) == 2285
    train, test = (set(task.id for task in ENVIRONMENT.tasks(s)) for s in ("train", "test"))
    assert not train & test
    assert Counter(task.family for task in ENVIRONMENT.tasks("base")) == {
        "telecom/mms_issue": 49,
        "telecom/mobile_data_issue": 36,
        "telecom/service_issue": 29,
    }
    with pytest.raises(ConfigError, match="dev"):
        ENVIRONMENT.tasks("dev")


def test_keeps_the_contract() -> None:
    environment = Tau2Environment(policy_document="brief")
    asyncio.run(check_environment(environment, 2, split="small"))


@pytest.mark.parametrize(
    ("option", "value"),
    [("domain", "banking"), ("policy_document", "x"), ("user", "llm"), ("max_errors", 0)],
)
def test_refuses_odd_options(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        Tau2Environment(**{option: value})


def test_an_unknown_task_is_named() -> None:
    from rti import Task

    with pytest.raises(ConfigError, match="mine"):
        asyncio.run(ENVIRONMENT.start(Task("mine")))


def test_policy_documents_shrink() -> None:
    texts = {
        name: start(environment=Tau2Environment(policy_document=name)).opening[0].content
        for name in ("full", "main", "brief")
    }
    assert len(texts["full"]) > 3 * len(texts["main"]) > 6 * len(texts["brief"])
    assert "tech_support_policy" in texts["full"]
    assert "# Telecom Agent Policy" in texts["main"]
    assert "check_status_bar" not in texts["main"]
    assert all(t.startswith("<instructions>\nYou are a customer service") for t in texts.values())


def test_tools_belong_to_someone() -> None:
    tools = start().tools
    assert Counter(tool.owner for tool in tools) == {"agent": 13, "user": 30}
    refuel = next(tool for tool in tools if tool.name == "refuel_data")
    assert set(refuel.parameters["required"]) == {"customer_id", "line_id", "gb_amount"}


# Reward


@pytest.mark.parametrize(("agent", "reward"), [("gold", 1.0), ("noop", 0.0)])
def test_reference_agents_on_all_base_tasks(agent: str, reward: float) -> None:
    acts = ENVIRONMENT.reference(agent)
    assert acts is not None
    sessions = [play(start(index), acts) for index in range(114)]
    assert [session.score() for session in sessions] == [reward] * 114
    assert all(session.ended == "user_stop" for session in sessions)
    assert ENVIRONMENT.reference("other") is None
    if agent == "gold":
        assert all(session.score() >= ENVIRONMENT.threshold for session in sessions)
        for index in range(0, 114, 12):
            assert official(sessions[index]) == 1.0


def test_score_equals_the_official_one_on_random_episodes() -> None:
    draw = random.Random(7)
    gold = ENVIRONMENT.reference("gold")
    assert gold is not None
    seen = Counter[float]()
    for index in draw.sample(range(114), 18):
        session = start(index)
        # A beginning by the book, so that a part of the assertions holds; then anything.
        for _ in range(draw.randrange(8)):
            if not session.ended:
                step(session, gold(session))
        for name in draw.choices(sorted(SAY), k=6):
            if not session.ended:
                step(session, SAY[name])
        assert session.score() == official(session)
        play(session, lambda _: SAY["goodbye"], 2)
        assert session.score() == official(session)
        seen[session.score()] += 1
    assert min(seen[0.0], seen[1.0]) > 0


def test_made_up_ids_follow_the_episode() -> None:
    session = start()
    first = step(session, SAY["other"]).observations
    assert not first[0].error
    again = step(start(), SAY["other"]).observations
    assert first == again
    play(session, lambda _: SAY["goodbye"], 2)
    assert official(session) == session.score() == 0.0


def test_counts_only_when_the_customer_has_ended_it() -> None:
    session = start()
    gold = ENVIRONMENT.reference("gold")
    assert gold is not None
    while session.evidence(0).facts["reward_breakdown"] != {"ENV_ASSERTION": 1.0}:
        step(session, gold(session))
    assert session.ended is None
    assert session.score() == official(session) == 0.0
    play(session, gold)
    assert session.score() == 1.0


def test_too_many_errors_end_it() -> None:
    session = start(environment=Tau2Environment(max_errors=3))
    assert [step(session, SAY["speed"]).done for _ in range(3)] == [False, False, True]
    assert (session.ended, session.score()) == ("too_many_errors", 0.0)
    with pytest.raises(RunError, match="over"):
        step(session, SAY["speed"])


# Turns


def test_a_customers_tool_called_by_the_agent_is_an_error() -> None:
    (seen,) = step(start(), SAY["speed"]).observations
    assert seen == Message(
        "tool", "Error: Tool 'run_speed_test' not found.", tool_call_id="0", error=True
    )


def test_every_call_gets_its_observation_and_text_beside_calls_is_not_heard() -> None:
    session = start()
    message = Message(
        "assistant",
        "Please toggle airplane mode.",
        tool_calls=(
            ToolCall("get_customer_by_id", {"customer_id": "C1001"}, "a"),
            ToolCall("get_customer_by_id", {"customer": 3}, "b"),
            ToolCall("tool_name", {"tool_name": "x", "requestor": "user"}, "c"),
        ),
    )
    seen = step(session, message).observations
    assert [(m.role, m.tool_call_id, m.error) for m in seen] == [
        ("tool", "a", False), ("tool", "b", True), ("tool", "c", True),
    ]  # fmt: skip
    assert "John Smith" in seen[0].content
    assert not used(session)


def test_the_customers_tools_are_logged_as_the_customers() -> None:
    session = start()
    reply = say(session, "Please run a speed test.")
    assert "Speed test failed: No Connection." in reply
    calls = [
        (m.role, c.name, c.requestor)
        for m in session.log
        for c in getattr(m, "tool_calls", 0) or []
    ]
    assert calls == [("user", "run_speed_test", "user")]


def test_broken_calls_and_thoughts_are_not_heard() -> None:
    session = start()
    for text in (
        '<tool_call>{"name": "run_speed_test", "arguments": {',
        '<tool_call>{"name": "run_speed_test"</tool_call>',
        "<think>I could ask to run a speed test",
        "  ",
    ):
        assert "plain words" in say(session, text)
    assert not used(session)


def test_a_crash_of_the_simulator_is_no_failure_of_the_policy() -> None:
    session = start()
    session._simulator.environment.tools.db.lines.clear()
    with pytest.raises(InfrastructureError, match="tau2 crashed"):
        step(session, SAY["phone"])


def test_close_twice() -> None:
    session = start()
    for _ in range(2):
        asyncio.run(session.close())
    with pytest.raises(RunError, match="closed"):
        step(session, SAY["phone"])
    assert session.score() == 0.0


# Forks


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(SAY)), min_size=1, max_size=6), st.integers(0, 113), st.data()
)
def test_a_fork_is_the_state_before_its_turn(
    names: list[str], index: int, data: st.DataObject
) -> None:
    session = start(data.draw(st.integers(0, 113)))
    digests, steps = [session.state_digest()], []
    for name in names:
        if session.ended:
            break
        steps.append(step(session, SAY[name]))
        digests.append(session.state_digest())
    assert len(set(digests)) == len(digests)
    k = data.draw(st.integers(0, len(steps)))
    fork = asyncio.run(session.fork(k))
    assert fork.state_digest() == digests[k]
    assert fork.opening == session.opening
    # The fork goes its own way, and the session does not notice; a replay comes out the same.
    if not fork.ended:
        step(fork, SAY["flip"])
        assert session.state_digest() == digests[-1]
    again = asyncio.run(session.fork(k))
    assert [step(again, SAY[name]) for name in names[k : len(steps)]] == steps[k:]
    assert again.state_digest() == digests[-1]
    assert again.score() == session.score()


def test_no_fork_beyond_the_last_turn_or_from_a_changed_past() -> None:
    session = start()
    step(session, SAY["phone"])
    for k in (-1, 2):
        with pytest.raises(CannotFork, match=f"turn {k}"):
            asyncio.run(session.fork(k))
    session._steps[0] = Step((Message("tool", "something else", tool_call_id="0"),))
    with pytest.raises(CannotFork, match="differently"):
        asyncio.run(session.fork(1))


def test_gold_goes_on_from_any_fork() -> None:
    gold = ENVIRONMENT.reference("gold")
    assert gold is not None
    session = play(start(30), gold)
    for k in range(session.turns):
        assert play(asyncio.run(session.fork(k)), gold).score() == 1.0


# Evidence and privilege


def test_evidence_tells_success_and_nothing_privileged() -> None:
    for index in range(0, 114, 3):
        session = start(index)
        task = session.setting.task
        step(session, SAY["speed"])
        play(session, lambda _: SAY["goodbye"], 2)
        told = session.evidence(0)
        shown = told.text + repr(dict(told.facts))
        assert "not passed" in told.text
        assert "Error: Tool 'run_speed_test' not found." in told.text
        facts = session.privileged().facts
        assert task.id in facts
        assert task.ticket in facts
        assert not [fact for fact in facts if fact.strip() and fact in shown]
        names = [action.name for action in task.evaluation_criteria.actions]
        names += [call.func_name for call in task.initial_state.initialization_actions]
        values = ["C1001", "L1002", "B1234321", "555-123-2002", "John Smith", "2.0"]
        assert not [word for word in names + values if word in shown]


def test_gold_actions_are_privileged_with_their_arguments() -> None:
    facts = start(30).privileged().facts
    assert "refuel_data(customer_id='C1001', line_id='L1002', gb_amount=2.0)" in facts
    assert "set_network_mode_preference(mode='4g_5g_preferred')" in facts
    assert "turn_data_saver_mode_on()" in facts


def test_evidence_of_a_turn_holds_that_turns_errors() -> None:
    session = start()
    step(session, SAY["phone"])
    step(session, SAY["speed"])
    assert session.evidence(0).facts["tool_errors"] == ()
    assert len(session.evidence(1).facts["tool_errors"]) == 1
    assert session.evidence(2).facts["tool_errors"] == ()


def test_no_prompt_names_the_faults() -> None:
    for index in range(0, 114, 10):
        session = start(index)
        shown = "".join(m.content for m in session.opening)
        shown += "".join(tool.name + tool.description for tool in session.tools)
        task = ENVIRONMENT.tasks("base")[index]
        assert session.setting.task.id not in shown
        for fault in session.setting.task.id.split("]")[1].split("[")[0].split("|"):
            assert fault not in shown + task.id + task.family


# The customer


def scenario(index: int = 0) -> Scenario:
    return Scenario.of(start(index).setting.task)


def test_scenarios_are_spoken_in_the_first_person() -> None:
    for index in range(114):
        words = scenario(index)
        spoken = TelecomCustomer(words).opening()
        assert " you" not in spoken.lower().replace(". you", "")
        assert ("555-123-2002" in spoken) != words.reticent
    assert (
        first_person("You mobile data is slow. You are here.")
        == "My mobile data is slow. I am here."
    )


@pytest.mark.parametrize(
    ("words", "tool", "arguments", "wanted"),
    [
        ("Please run `check_status_bar()` now.", "check_status_bar", {}, None),
        ("Could you tell me what your status bar shows?", "check_status_bar", {}, None),
        ("Please run a speed test and tell me the result.", "run_speed_test", {}, None),
        ("What is your internet speed?", "run_speed_test", {}, None),
        ("Toggle airplane mode using toggle_airplane_mode()", "toggle_airplane_mode", {}, None),
        ("Please turn off Airplane Mode.", "toggle_airplane_mode", {}, False),
        ("Make sure your mobile data is turned on", "toggle_data", {}, True),
        ("I need you to enable data roaming", "toggle_roaming", {}, True),
        ("Turn your data saver mode off, please", "toggle_data_saver_mode", {}, False),
        ("Please switch on Wi-Fi calling", "toggle_wifi_calling", {}, True),
        ("please turn off your wifi", "toggle_wifi", {}, False),
        ("Is airplane mode on?", "check_network_status", {}, None),
        ("Is Data Saver enabled?", "check_data_restriction_status", {}, None),
        ("Check your network status please", "check_network_status", {}, None),
        ("check the network mode preference", "check_network_mode_preference", {}, None),
        ("Please change the network mode from 2G to 5G", "set_network_mode_preference",
         {"mode": "4g_5g_preferred"}, None),
        ("set_network_mode_preference(mode='3g_only')", "set_network_mode_preference",
         {"mode": "3g_only"}, None),
        ("Please check whether your SIM card is active", "check_sim_status", {}, None),
        ("Remove and reinsert the SIM card", "reseat_sim_card", {}, None),
        ("Could you check the APN settings?", "check_apn_settings", {}, None),
        ("Please confirm and reset your APN settings", "reset_apn_settings", {}, None),
        ('set_apn_settings({"apn_name": "internet"})', "set_apn_settings",
         {"apn_settings": {"apn_name": "internet"}}, None),
        ("Are you connected to a VPN?", "check_vpn_status", {}, None),
        ("Please disconnect from the VPN", "disconnect_vpn", {}, None),
        ("please connect to your VPN", "connect_vpn", {}, None),
        ("Check your Wi-Fi status", "check_wifi_status", {}, None),
        ("Is Wi-Fi calling enabled?", "check_wifi_calling_status", {}, None),
        ("Which apps are installed?", "check_installed_apps", {}, None),
        ("Use check_app_status for the browser", "check_app_status", {"app_name": "browser"}, None),
        ("Check the permissions of your messaging app", "check_app_permissions",
         {"app_name": "messaging"}, None),
        ("Grant the sms permission to it", "grant_app_permission",
         {"app_name": "messaging", "permission": "sms"}, None),
        ("Give your phone's messaging app access to storage", "grant_app_permission",
         {"app_name": "messaging", "permission": "storage"}, None),
        ("Can you try to send a picture message?", "can_send_mms", {}, None),
        ("Please restart your phone", "reboot_device", {}, None),
        ("Check if there is a payment request", "check_payment_request", {}, None),
        ("I have sent a request, please pay the bill", "make_payment", {}, None),
        ("Don't worry, just reboot the device.", "reboot_device", {}, None),
    ],
)  # fmt: skip
def test_hears_what_it_is_asked(
    words: str, tool: str, arguments: dict[str, Any], wanted: bool | None
) -> None:
    reason = "You are unable to send MMS messages using your messaging app."
    assert next(iter(find_requests(words, reason))) == Request(tool, arguments, wanted)


@pytest.mark.parametrize(
    "words",
    [
        "Do not toggle airplane mode.",
        "I will run a speed test for you.",
        "I've enabled data roaming on your line.",
        "Did you restart your phone?",
        "Let me check the status bar.",
        "I see that your SIM card is missing.",
        "There is no need to reboot.",
        "Hello, how are you today?",
        "Once you have rebooted the device, let me know.",
    ],
)
def test_does_not_do_what_it_was_not_asked(words: str) -> None:
    assert list(find_requests(words, "")) == []


def test_every_tool_of_the_customer_can_be_asked_for_by_name() -> None:
    session = start()
    for tool in session.tools:
        if tool.owner == "user":
            (request,) = find_requests(f"Please use {tool.name}.", "")
            assert request.tool == tool.name


def test_gold_asks_are_heard_as_meant() -> None:
    for index in range(114):
        for action in start(index).setting.task.evaluation_criteria.actions or []:
            if action.requestor == "user":
                heard = next(iter(find_requests(ask(action.name, action.arguments), "")))
                assert (heard.tool, dict(heard.arguments)) == (action.name, action.arguments)


def test_a_switch_already_so_is_left_alone() -> None:
    session = start()  # its fault is airplane mode
    assert "already" in say(session, "Please turn on airplane mode.")
    assert "now OFF" in say(session, "Please turn off airplane mode.")
    assert "already" in say(session, "Please turn off airplane mode.")


def test_does_one_thing_at_a_time() -> None:
    session = start()
    reply = say(session, "Please toggle airplane mode, then restart your phone.")
    assert "one thing at a time" in reply
    assert [call.name for call in used(session)] == ["toggle_airplane_mode"]


def test_asks_back_instead_of_guessing() -> None:
    session = start()
    assert "which app" in say(session, "Please grant the storage permission.")
    assert "which network mode" in say(session, "Please change your network mode preference.")
    assert "which settings" in say(session, "Please use set_apn_settings.")
    assert not used(session)


def test_tells_who_it_is_what_it_wants_and_what_it_agrees_to() -> None:
    session = start()
    assert "555-123-2002" in say(session, "May I have your phone number?")
    assert "mobile data is not working" in say(session, "What problem are you experiencing?")
    refuel = say(session, "Your data usage is exceeded. Would you like to refuel 2 GB for $4?")
    assert "willing to refuel 2.0 GB" in refuel
    assert say(session, "May I go on?") == "Yes, please go ahead."


def test_ends_when_solved_passed_on_or_out_of_patience() -> None:
    solved = start()
    say(solved, "Please turn off airplane mode.")
    say(solved, "Please turn on data roaming.")
    assert say(solved, "Your internet should work now.").endswith("###STOP###")
    assert solved.score() == 1.0

    passed_on = start()
    assert step(passed_on, SAY["handover"]).done
    assert passed_on.score() == 0.0

    patient = start()
    assert not step(patient, SAY["goodbye"]).done
    assert step(patient, SAY["goodbye"]).done
    assert patient.score() == 0.0


def test_the_log_is_in_order_and_forks_write_the_same() -> None:
    def dump(log: Sequence[Any]) -> list[str]:
        return [message.model_dump_json() for message in log]

    session = start(30)
    for name in ("phone", "flip", "speed", "other"):
        step(session, SAY[name])
    stamps = [message.timestamp for message in session.log]
    assert stamps == sorted(stamps)
    assert len(set(stamps)) == len(stamps)
    assert dump(asyncio.run(session.fork(4)).log) == dump(session.log)
    assert load().version.startswith("26.")
