"""τ²-bench's retail and airline: shared databases, rewards, forks, evidence, the desk customer."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rti import InfrastructureError, Message, Session, Step, ToolCall, Turn
from rti.cli import main
from rti.testing import check_environment

pytest.importorskip("tau2", reason="needs the extra tau2")
from rti_tau2 import Tau2Environment, checks, overlay, scoring
from rti_tau2.arithmetic import too_large
from rti_tau2.customer import Scenario
from rti_tau2.desk import DeskCustomer
from rti_tau2.session import Tau2Session
from rti_tau2.simulator import Simulator, _database
from rti_tau2.upstream import catalogue, load
from rti_tau2.wishes import spoken, wishes

RETAIL, AIRLINE = Tau2Environment(domain="retail"), Tau2Environment(domain="airline")
DOMAINS = {"retail": RETAIL, "airline": AIRLINE}
BYE = Message("assistant", "Is there anything else I can help you with?")


def start(environment: Tau2Environment, tau2_id: str = "0") -> Tau2Session:
    task = next(t for t in environment.tasks("base") if t.data["tau2_id"] == tau2_id)
    return asyncio.run(environment.start(task))


def step(session: Session, message: Message) -> Step:
    return asyncio.run(session.step(Turn(0, (), (), (), message)))


def call(session: Session, name: str, **arguments: Any) -> Message:
    (seen,) = step(
        session, Message("assistant", tool_calls=(ToolCall(name, arguments, "0"),))
    ).observations
    return seen


def finished(session: Tau2Session) -> Tau2Session:
    while not session.ended:
        step(session, BYE)
    return session


# Tasks


def test_splits_and_the_tasks_that_doing_nothing_solves() -> None:
    idle = {"retail": (5, 2), "airline": (13, 6)}
    for name, environment in DOMAINS.items():
        upstream = load().registry.get_tasks_loader(name)
        for split in ("train", "test", "base"):
            wanted = [task.id for task in upstream(split)]
            everything = Tau2Environment(domain=name, keep_idle_tasks=True).tasks(split)
            assert [task.data["tau2_id"] for task in everything] == wanted
            kept = environment.tasks(split)
            left_out = [t for t in everything if t.id not in {k.id for k in kept}]
            assert all(t.data.get("idle") for t in left_out)
            if split == "train":
                assert len(left_out) == idle[name][0]
                assert not any(t.data.get("idle") for t in kept)
            else:
                assert not left_out
            if split == "test":
                assert sum(bool(t.data.get("idle")) for t in kept) == idle[name][1]
        assert len({t.id for t in environment.tasks("base")}) == len(environment.tasks("base"))


@pytest.mark.parametrize("name", DOMAINS)
def test_reference_agents_on_all_base_tasks(name: str) -> None:
    environment = DOMAINS[name]
    for task in environment.tasks("base"):
        ends = {}
        for who in ("gold", "noop"):
            played = asyncio.run(checks.play(environment, task, environment.reference(who)))
            assert played.ended == "user_stop"
            ends[who] = played.score()
        assert ends == {"gold": 1.0, "noop": float(bool(task.data.get("idle")))}


@pytest.mark.parametrize("name", DOMAINS)
def test_keeps_the_contract(name: str) -> None:
    environment = Tau2Environment(domain=name, policy_document="brief")
    asyncio.run(check_environment(environment, 2, split="test"))


# Rewards, against tau2's own evaluator


@pytest.mark.parametrize("name", DOMAINS)
def test_scores_are_the_official_ones(name: str) -> None:
    environment = DOMAINS[name]
    tasks = environment.tasks("base")
    found = [
        checks.compared(environment, tasks[:: len(tasks) // 3], "gold"),
        checks.compared(environment, tasks[:: len(tasks) // 3], "noop"),
        checks.at_random(environment, 10, seed=3),
        checks.forked(environment, tasks[1:3]),
    ]
    assert [agreement.odd for agreement in found] == [[]] * 4
    random_ones = found[2]
    assert 0 < random_ones.rewarded < random_ones.episodes
    assert found[3].episodes > 4


def test_a_disagreement_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tau2Session, "score", lambda self: 0.5)
    found = checks.compared(RETAIL, RETAIL.tasks("base")[:1], "noop")
    assert len(found.odd) == 1


def test_what_must_be_told_counts() -> None:
    task = catalogue("retail").tasks["4"]
    assert task.evaluation_criteria.communicate_info == ["10"]
    for told, wanted in (("There are ten options.", 0.0), ("There are 10 options.", 1.0)):
        session = start(RETAIL, "4")
        for action in task.evaluation_criteria.actions:
            call(session, action.name, **action.arguments)
        step(session, Message("assistant", told))
        finished(session)
        breakdown = session.evidence(0).facts["reward_breakdown"]
        assert breakdown == {"DB": 1.0, "COMMUNICATE": wanted}
        assert session.score() == checks.official(session) == wanted


def test_a_cut_off_episode_keeps_its_partial_scores() -> None:
    session = start(AIRLINE, "0")  # solved by doing nothing, but nobody has hung up
    assert session.evidence(0).facts["reward_breakdown"] == {"DB": 1.0, "COMMUNICATE": 1.0}
    assert (session.ended, session.score()) == (None, 0.0)
    assert finished(session).score() == 1.0


def test_a_task_judged_by_a_model_is_refused_and_no_zero() -> None:
    session = start(AIRLINE, "0")
    task = session.setting.task.model_copy(deep=True)
    basis = type(task.evaluation_criteria.reward_basis[0])
    task.evaluation_criteria.reward_basis = [basis("NL_ASSERTION")]
    with pytest.raises(InfrastructureError, match="NL_ASSERTION"):
        scoring.reward(load(), "airline", task, session._simulator, session.log)


# The shared database


def test_sessions_share_a_database_and_nothing_else() -> None:
    before = {name: load().registry.get_env_constructor(name)().get_db_hash() for name in DOMAINS}
    for name, environment in DOMAINS.items():
        checks.at_random(environment, 12, seed=5)
        for tau2_id in ("0", "7"):
            session, other = start(environment, tau2_id), start(environment, tau2_id)
            gold = environment.reference("gold")
            assert gold is not None
            untouched = other._simulator.fingerprint()
            while not session.ended:
                step(session, gold(session))
            assert other._simulator.fingerprint() == untouched
        # tau2's hash of everything: no tool has written past its own copy.
        shared = _database(name)
        assert shared.get_hash() == before[name]


@pytest.mark.parametrize("name", DOMAINS)
def test_an_overlay_answers_like_the_whole_database(name: str) -> None:
    construct = load().registry.get_env_constructor(name)
    agent = checks.RandomAgent(random.Random(1), name)
    whole = construct()
    ours = Simulator.of(name, next(iter(catalogue(name).tasks.values())))
    for number in range(150):
        for made in agent.turn().tool_calls:
            module = load().message
            wanted = module.ToolCall(
                id=str(number), name=made.name, arguments=dict(made.arguments),
                requestor="assistant",
            )  # fmt: skip
            assert ours.environment.get_response(wanted) == whole.get_response(wanted)
    changed = overlay.changes(ours.environment.tools.db)
    assert any(changed.values())
    pristine = construct().tools.db
    for table, records in changed.items():
        for key, text in records.items():
            assert overlay._written(getattr(whole.tools.db, table)[key]) == text
            old = getattr(pristine, table).get(key)
            assert old is None or overlay._written(old) != text
    for table in changed:  # and all other records are as they were, in both
        for key, record in getattr(whole.tools.db, table).items():
            if key not in changed[table]:
                assert record == getattr(pristine, table)[key]


class Record:
    """As much of a pydantic record as an overlay needs."""

    def __init__(self, value: int) -> None:
        self.value = value

    def model_copy(self, deep: bool) -> Record:
        assert deep
        return Record(self.value)

    def model_dump(self, warnings: bool) -> dict[str, int]:
        return {"value": self.value}


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3), max_size=4),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["look", "change", "set"]))),
)
def test_an_overlay_is_a_copy_that_knows_its_changes(
    shared: dict[str, int], acts: list[tuple[str, str]]
) -> None:
    below = {key: Record(value) for key, value in shared.items()}
    table, model = overlay.Overlay(below), dict(shared)
    for key, act in acts:
        if act == "set":
            table[key], model[key] = Record(7), 7
        elif key in model:
            record = table[key]
            if act == "change":
                record.value += 1
                model[key] += 1
    assert {key: record.value for key, record in table.items()} == model
    assert [record.value for record in table.values()] == list(model.values())
    assert list(table) == list(model)
    assert len(table) == len(model)
    assert all((key in table) == (key in model) for key in "abcdef")
    assert set(table.changes()) == {k for k, v in model.items() if shared.get(k) != v}
    assert {key: record.value for key, record in below.items()} == shared
    with pytest.raises(KeyError):
        table["g"]


@pytest.mark.parametrize(
    ("expression", "large"),
    [
        ("2 + 2", False), ("2 ** 10", False), ("(3 - 1) ** 2 / 4", False), ("-2 ** 2", False),
        ("9**9**9**9", True), ("9**9**7", True), ("0.5 ** -9999", True), ("2 ** (3 * 400)", True),
        ("(" * 5000 + "2**2", True), ("2 ** ", True), ("() ** 2", True), ("1/0 ** 2", True),
    ],
)  # fmt: skip
def test_a_power_that_would_take_for_ever_is_not_computed(expression: str, large: bool) -> None:
    assert too_large(expression) is large
    session = start(RETAIL)
    began = time.monotonic()
    seen = call(session, "calculate", expression=expression)
    assert time.monotonic() - began < 5
    assert (seen.content == "Error: the result is too large.") is large
    assert seen.error is large


def test_what_cannot_be_written_down_is_the_policys_error_and_no_fault() -> None:
    deep: Any = 1
    for _ in range(300):
        deep = {"x": deep}
    session = start(RETAIL)
    for odd in ({"order_id": "#W\udc80"}, {"deep": deep}, {"\udc80": 1}):
        seen = call(session, "get_order_details", **odd)
        assert seen == Message(
            "tool", "Error: the arguments cannot be read.", tool_call_id="0", error=True
        )
    assert call(session, "\udc80").error
    assert "\udc80" not in step(session, Message("assistant", "\udc80?")).observations[0].content
    assert asyncio.run(session.fork(5)).state_digest() == session.state_digest()
    assert finished(session).score() == 0.0


def test_what_the_policy_makes_up_breaks_nothing() -> None:
    session = start(AIRLINE, "8")
    for arguments in ({"reservation_id": []}, {"reservation_id": None}, {"x": {}}, {}):
        assert call(session, "get_reservation_details", **arguments).error
    odd = call(session, "update_reservation_passengers", reservation_id="WUNA5K", passengers=[{}])
    assert odd.error
    assert session._simulator.fingerprint() == start(AIRLINE, "8")._simulator.fingerprint()


# Forks


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(DOMAINS)), st.integers(0, 10_000), st.data())
def test_a_fork_is_the_state_before_its_turn(name: str, seed: int, data: st.DataObject) -> None:
    agent = checks.RandomAgent(random.Random(seed), name)
    session = start(DOMAINS[name], str(seed % 50))
    digests = [session.state_digest()]
    for _ in range(6):
        if session.ended:
            break
        step(session, agent.turn())
        digests.append(session.state_digest())
    k = data.draw(st.integers(0, session.turns))
    fork = asyncio.run(session.fork(k))
    assert fork.state_digest() == digests[k]
    if not fork.ended:
        step(fork, BYE)
    assert session.state_digest() == digests[-1]


# Evidence and privilege


@pytest.mark.parametrize("name", DOMAINS)
def test_evidence_tells_nothing_privileged(name: str) -> None:
    rubrics = 0
    for task in catalogue(name).tasks.values():
        session = start(DOMAINS[name], task.id)
        told = session.evidence(0)
        shown = told.text + repr(dict(told.facts))
        facts = session.privileged().facts
        assert not [fact for fact in facts if len(fact) > 1 and fact in shown]
        arguments = [v for a in task.evaluation_criteria.actions for v in a.arguments.values()]
        ids = [v for v in arguments if isinstance(v, str) and any(c.isdigit() for c in v)]
        assert not [value for value in ids if value in shown]
        assert not set(task.evaluation_criteria.communicate_info) & set(shown.split())
        rubrics += len(told.facts["wanted"])
    assert rubrics == {"retail": 12, "airline": 28}[name]


def test_assertions_in_words_are_shown_unless_they_hold_the_answer() -> None:
    task = catalogue("airline").tasks["8"]
    shown = list(scoring.wanted(task))
    assert shown == []
    assert "Agent uses single certificate for payment." in task.evaluation_criteria.nl_assertions
    refuse = "Agent should refuse to proceed with the cancellation."
    assert list(scoring.wanted(catalogue("airline").tasks["0"])) == [refuse]
    assert f"Wanted: {refuse}" in start(AIRLINE, "0").evidence(0).text
    hidden = set(scoring.privileged(task)) & set(task.evaluation_criteria.nl_assertions)
    assert hidden == set(task.evaluation_criteria.nl_assertions)
    told = catalogue("airline").tasks["14"]
    assert "$871" in told.description.purpose
    assert told.description.purpose in set(scoring.privileged(told))
    assert "Purpose" not in start(AIRLINE, "14").evidence(0).text
    assert (
        "Purpose of the task: Booking with extra passenger." in start(AIRLINE, "8").evidence(0).text
    )


def test_gold_calls_are_privileged_and_a_bare_number_of_a_task_is_not() -> None:
    facts = start(RETAIL, "16").privileged().facts
    assert any(fact.startswith("cancel_pending_order(order_id='#W") for fact in facts)
    assert "8276.23" in facts
    assert "16" not in facts
    assert "You are Fatima Johnson in zipcode 78712." in facts


# The customer


def customer(name: str, tau2_id: str) -> DeskCustomer:
    return DeskCustomer(Scenario.of(catalogue(name).tasks[tau2_id]))


def nothing(*_: Any) -> str:
    raise AssertionError("there is no phone at this desk")


def test_every_customer_says_what_it_came_for_in_the_first_person() -> None:
    for name in DOMAINS:
        for tau2_id, task in catalogue(name).tasks.items():
            who = customer(name, tau2_id)
            said = who.opening()
            assert len(said) > 25, (name, tau2_id)
            assert "the agent" not in said
            assert task.user_scenario.instructions.known_info.split("\n")[0] not in said
            assert said.startswith("Hello. ")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("You want the agent to book it.", "I want you to book it."),
        ("You want to cancel your order.", "I want to cancel my order."),
        ("mention that you have insurance", "I have insurance."),
        ("ask the agent to upgrade you to business.", "Please upgrade me to business."),
        ("Ask how much the refund would be.", "Please tell me how much the refund would be."),
        ("You were out of town.", "I was out of town."),
        ("...", ""),
    ],
)
def test_instructions_in_its_own_words(told: str, words: str) -> None:
    assert spoken(told) == words


def test_how_it_should_behave_is_not_said() -> None:
    told = Scenario(
        "You want to return a lamp. You are a private person. Be polite.\nYou are fine with"
        " PayPal.",
        "You are Yusuf Rossi.",
        "If the agent asks for confirmation, only return the bulb. If the agent says it is not"
        " possible, mention that you are a member. If the agent asks which lamp, the blue one.",
        "",
    )
    assert [(wish.text, wish.occasion) for wish in wishes(told)] == [
        ("I want to return a lamp.", "any"),
        ("I am fine with PayPal.", "any"),
        ("Only return the bulb.", "confirm"),
        ("I am a member.", "refused"),
        ("The blue one.", "asked"),
    ]
    who = DeskCustomer(told)
    assert who.opening() == "Hello. I want to return a lamp. I am fine with PayPal."
    assert who.answer("May I have your name, please?", nothing) == "I am Yusuf Rossi."
    assert who.answer("Which lamp is it?", nothing) == "The blue one."
    assert (
        who.answer("I will return it. Do you confirm? (yes/no)", nothing) == "Only return the bulb."
    )
    assert who.answer("Only the bulb. Do you confirm?", nothing) == "Yes, please go ahead."
    assert who.answer("Unfortunately that is not possible.", nothing) == "I am a member."
    assert "What can you do" in who.answer("It cannot be done.", nothing)
    assert who.answer(BYE.content, nothing).endswith("###STOP###")


def test_it_says_at_a_goodbye_what_it_has_not_said_and_then_hangs_up() -> None:
    who = customer("airline", "14")
    who.opening()
    rest = who.answer("Is there anything else?", nothing)
    assert "cheapest business round trip" in rest
    assert "###STOP###" not in rest
    assert "###STOP###" in who.answer("Goodbye!", nothing)


CLOSINGS = (
    "Is there anything else I can help you with?",
    "All done. You will receive a confirmation email shortly. Is there anything else I can help you"
    " with?",
    "Great, the change is confirmed. Is there anything else I can do for you today?",
    "The instructions were sent to your e-mail. Is there anything else I can help you with?",
    "Unfortunately that is not possible. Have a great day!",
)
NOT_YET = (
    "Let me take care of that for you.",
    "Besides that, is there anything else you would like to change? It can be done once.",
    "Before I proceed, is there anything else to exchange?",
    "If this fails I will transfer you to a specialist. What is your order id?",
    "I will transfer you the gift card balance.",
)


@pytest.mark.parametrize("name", DOMAINS)
@pytest.mark.parametrize("closing", CLOSINGS)
def test_every_customer_hangs_up_at_usual_closings(name: str, closing: str) -> None:
    for tau2_id in catalogue(name).tasks:
        who = customer(name, tau2_id)
        who.opening()
        said = [who.answer(closing, nothing) for _ in range(4)]
        assert any("###STOP###" in words for words in said), tau2_id
        assert "please go ahead" not in " ".join(said)


@pytest.mark.parametrize("name", DOMAINS)
@pytest.mark.parametrize("words", NOT_YET)
def test_no_customer_hangs_up_before_the_work_is_done(name: str, words: str) -> None:
    for tau2_id in catalogue(name).tasks:
        who = customer(name, tau2_id)
        who.opening()
        assert "###" not in who.answer(words, nothing) + who.answer(words, nothing), tau2_id


def test_a_choice_is_not_answered_by_yes() -> None:
    who = customer("retail", "64")
    who.opening()
    for words in ("Which item would you like?", "Would you like PayPal or the gift card?"):
        assert "go ahead" not in who.answer(words, nothing)
    assert who.answer("Would you like me to send it?", nothing) == "Yes, please go ahead."


def test_asked_for_the_rest_it_says_the_rest() -> None:
    who = customer("airline", "14")
    who.opening()
    rest = who.answer("Is there anything else you would like to change as well?", nothing)
    assert "cheapest business round trip" in rest
    again = who.answer("Is there anything else you would like to add?", nothing)
    assert again == "No, that is all of it."


def test_it_understands_that_it_is_passed_on_and_that_there_was_nothing_to_hear() -> None:
    who = customer("retail", "0")
    who.opening()
    assert "plain words" in who.answer("<tool_call>{", nothing)
    passed_on = who.answer("YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON.", nothing)
    assert passed_on == "###TRANSFER###"


# What it is called, and the command


def test_a_table_names_what_is_not_the_benchmark_itself() -> None:
    assert Tau2Environment().benchmark == "τ²-telecom, customer: scripted"
    where = {"user_base_url": "http://127.0.0.1:9/v1", "user_model": "m"}
    other = Tau2Environment(
        domain="airline", policy_document="main", user="endpoint", max_errors=3,
        user_temperature=0.7, **where,
    )  # fmt: skip
    assert other.benchmark == "τ²-airline, customer: m, its temperature: 0.7, errors: 3"
    assert Tau2Environment(policy_document="main").benchmark.startswith("τ²-telecom, policy: main")


def test_the_command_checks_a_domain(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--domain", "retail", "--tasks", "2", "--random", "2", "--forked", "1"]
    assert main(["tau2", "check", *words]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split("|")[1].strip() for row in rows[2:]] == [
        "retail, gold", "retail, noop", "retail, random actions", "retail, forks",
    ]  # fmt: skip
    assert "| 2/2 | 2/2 |" in rows[2]
    assert main(["tau2", "check", "--random", "-1"]) == 2
    assert "--random -1" in capsys.readouterr().err


def test_the_command_fails_on_a_disagreement(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tau2Session, "score", lambda self: 0.5)
    words = ["--domain", "retail", "--tasks", "1", "--random", "0", "--forked", "0"]
    assert main(["tau2", "check", *words]) == 1
    assert "retail, gold: retail-" in capsys.readouterr().out
