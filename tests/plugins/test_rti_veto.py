"""The leak veto at its public door: what it refuses, what passes, and that it never breaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rti import (
    Correction,
    Diagnosis,
    Evidence,
    History,
    Message,
    Privileged,
    Tool,
    ToolCall,
    Turn,
    Verdict,
)
from rti.assemble import Run
from rti.registry import Registry
from rti_veto import LeakVeto
from rti_veto.normalise import clean, fold

SECRETS = (
    "refund(customer_id='C1001', order='Q-7734', amount=1284.5, day='2024-05-03')",
    "You are Renée Kowalski with phone number 555-123-2002. You moved to Lisbon.",
    "aurora",
)
RUBRIC = (
    "The clerk confirms the pending warranty claim before issuing any replacement voucher.\n"
    "If they are unsure about whether a claim still counts, they ask."
)
HISTORY = (
    Message("system", "You are a clerk. Refunds up to 250 dollars need no manager. Be polite."),
    Message("user", "My name is Tom Brandt, customer B-2210. I paid $1,999.90 on March 9, 2023."),
)
TOOLS = (
    Tool("refund", "Refund an order by its id.", {"properties": {"order": {"type": "string"}}}),
)


def turn(content: str = "hm", *calls: ToolCall, observations: Any = ()) -> Turn:
    return Turn(
        0, (0,), (0,), (0.0,), Message("assistant", content, tool_calls=calls), 0,
        observations=tuple(observations),
    )  # fmt: skip


def says(content: str = "", *, reasoning: str = "", **arguments: Any) -> Correction:
    calls = (ToolCall("refund", arguments),) if arguments else ()
    return Correction((), Message("assistant", content, reasoning, calls))


def verdict(
    correction: Correction,
    veto: LeakVeto | None = None,
    draft: Turn | None = None,
    messages: tuple[Message, ...] = HISTORY,
    facts: tuple[str, ...] = SECRETS,
    evidence: Evidence | None = None,
) -> Verdict:
    return asyncio.run(
        (veto or LeakVeto()).verify(
            correction,
            draft or turn(),
            History(messages, (0,), TOOLS),
            evidence or Evidence(RUBRIC),
            Privileged(facts),
        )
    )


@pytest.mark.parametrize(
    "text",
    [
        "It is C1001.",
        "It is c 10-01.",
        "It is Ｃ１００１.",
        "It is С1001.",  # Cyrillic Es
        "It is C1\u200b001.",
        "It is C one zero zero one.",
        "It is C1OO1.",
        "the customer ending 1001",
        "https://x.org/c/C1001?y=1",
        "order Q7734",
        "$1,284.50",
        "1.284,50 EUR",
        "one thousand two hundred eighty-four point five",
        "128450 cents",
        "about 1284",
        "May 3, 2024",
        "03/05/2024",
        "the third of May",
        "3-May-24",
        "20240503",
        "(555) 123 2002",
        "the number ending in 2002",
        "five five five, one two three, two zero zero two",
        "Ms. Kowalski",
        "R. Kowalski",
        "Kowalski, Renee",
        "Kowalsky",
        "reneekowalski",
        "K-o-w-a-l-s-k-i",
        "How is Lisbon?",
        "Aurora",
        "First I issue a replacement voucher, confirming the pending warranty claims.",
        "Well, if they are unsure about whether a claim is lost.",
    ],
)
def test_what_the_policy_could_not_know_is_refused(text: str) -> None:
    for correction in (says(text), says("ok", reasoning=text), says(order=text)):
        said = verdict(correction)
        assert not said.accepted, text
        assert said.reason


@pytest.mark.parametrize(
    "text",
    [
        "Could you tell me your customer number?",
        "Thank you, Mr. Brandt.",
        "T. Brandt, customer B2210",
        "You paid 1999.90 dollars on 9 March 2023.",
        "You paid one thousand nine hundred ninety-nine dollars and 90 cents on 2023-03-09.",
        "Up to $250 I can refund it myself.",
        "Please wait 30 seconds and try 2 or 3 times.",
        "I will refund an order by its id.",
        "Did you claim a warranty before, and is there a voucher?",
        "I am sorry. Let me look into it.",
        "Would you like a refund or a replacement?",
        "Is that a 100% refund?",
        "May I help you?",
    ],
)
def test_what_it_could_know_passes(text: str) -> None:
    for correction in (says(text), says("ok", reasoning=text), says(order=text)):
        said = verdict(correction)
        assert said.accepted, said.reason


@pytest.mark.parametrize(
    "arguments",
    [
        {"order": "C1001"},
        {"order": [{"a": [["C1001"]]}]},
        {"order": {"C1001": True}},
        {"a": "C10", "b": "01"},
        {"order": list("C1001")},
        {"order": 1284.5},
        {"order": '{"id": "C1001"}'},
    ],
)
def test_arguments_are_checked_each_and_together(arguments: Mapping[str, Any]) -> None:
    assert not verdict(says(**arguments)).accepted


def test_a_value_by_itself_is_refused_where_the_same_word_in_prose_is_not() -> None:
    facts = ("set_mode(mode='express')",)
    assert verdict(says("Shall we express it that way?"), facts=facts).accepted
    assert not verdict(says(order="express"), facts=facts).accepted


def test_a_tool_name_may_leak() -> None:
    call = ToolCall("open_C1001", {})
    assert not verdict(Correction((), Message("assistant", tool_calls=(call,)))).accepted


def test_the_draft_is_the_policys_own_guess() -> None:
    guess = turn("", ToolCall("refund", {"order": "C1001"}))
    assert verdict(says(order="C1001"), draft=guess).accepted


def test_what_the_drafts_own_call_returned_comes_too_early() -> None:
    later = turn("let me look", observations=[Message("tool", '{"ticket": "T-5519"}')])
    said = verdict(says("Your ticket is T5519."), draft=later)
    assert not said.accepted
    assert said.reason.startswith("early id")
    off = LeakVeto(observations=False)
    assert verdict(says("Your ticket is T5519."), off, draft=later).accepted
    told = (*HISTORY, Message("tool", '{"ticket": "T-5519"}'))
    assert verdict(says("Your ticket is T5519."), draft=later, messages=told).accepted


def test_an_id_from_nowhere_is_refused_in_an_argument_only() -> None:
    assert verdict(says(order="X90817")).reason.startswith("unfounded id")
    assert verdict(says("Is it X90817?")).accepted
    assert verdict(says(order="X90817"), LeakVeto(unfounded=False)).accepted
    assert verdict(says(order="B2210")).accepted
    assert verdict(says(order="100mb")).accepted
    assert verdict(says(amount=128450)).accepted
    assert not verdict(says(order="128450771")).accepted


def test_a_small_number_is_an_answer_only_where_it_is_the_whole_secret() -> None:
    assert verdict(says("It is 7."), facts=("amount=7",)).accepted
    assert not verdict(says("It is 7."), facts=("7",)).accepted
    assert not verdict(says("It is 40."), facts=("amount=40",)).accepted
    assert verdict(says("It is 40."), LeakVeto(small=50), facts=("amount=40",)).accepted


def test_units_of_one_value_are_one_value() -> None:
    facts = ("rate=0.15, used_gb=12.8, hold='90 minutes'",)
    for text in ("That is 15 %.", "You used 12,800 MB.", "Hold on for 1.5 hours."):
        assert not verdict(says(text), facts=facts).accepted, text
    known = (Message("user", "15 percent, 12.8 GB, 1.5 hours"),)
    for text in ("That is 15%.", "You used 12,800 MB.", "Hold on for 90 minutes."):
        assert verdict(says(text), facts=facts, messages=known).accepted, text


def test_the_evidence_counts_like_a_privileged_fact() -> None:
    evidence = Evidence("Final k12.", {"goal": {"place": "Port Mavrel"}})
    for text in ("route K-12", "Mavrel is near"):
        assert not verdict(says(text), facts=(), evidence=evidence).accepted


def test_names_without_capitals_are_found_where_they_are_secrets() -> None:
    facts = ("search(place='东涌广场')",)
    assert not verdict(says("我们去东涌广场"), facts=facts).accepted
    known = (Message("user", "我要去东涌广场。"),)
    assert verdict(says("我们去东涌广场"), facts=facts, messages=known).accepted


def test_a_diagnosis_is_vetted_and_each_half_switches_apart() -> None:
    def vet(veto: LeakVeto, direction: str) -> Verdict:
        diagnosis = Diagnosis(True, "wrong-tool", direction)
        return asyncio.run(
            veto.vet(
                diagnosis, turn(), History(HISTORY, (0,), TOOLS), Evidence(RUBRIC),
                Privileged(SECRETS),
            )
        )  # fmt: skip

    assert not vet(LeakVeto(), "answer is C1001").accepted
    assert vet(LeakVeto(), "ask the user for the customer number").accepted
    assert vet(LeakVeto(diagnoses=False), "answer is C1001").accepted
    assert not vet(LeakVeto(corrections=False), "answer is C1001").accepted
    assert verdict(says("C1001"), LeakVeto(corrections=False)).accepted
    assert not verdict(says("C1001"), LeakVeto(diagnoses=False)).accepted


def test_the_trained_tokens_are_read_too(pocket: Callable[..., Run]) -> None:
    renderer = pocket(trains=False).renderer
    veto = LeakVeto()
    veto.bind(SimpleNamespace(renderer=renderer))  # type: ignore[arg-type]
    message = Message("assistant", "found it .")
    for place, accepted in (("k12", False), ("k13", True)):
        ids = renderer.encode(f"found it . route {place} <e>")
        said = verdict(Correction(ids, message), veto, facts=("k12",))
        assert said.accepted == accepted
        assert accepted or "in tokens" in said.reason


def test_it_is_built_by_name_and_is_quick() -> None:
    veto = Registry.load().get("verifier", "leaks")()
    text = " ".join(f"word{i} and some more of it, as people write." for i in range(1200))
    messages = (Message("system", text), *HISTORY)
    correction = says("I refund C1001 for Ms. Kowalski on May 3, 2024, $1,284.50.")
    began = time.process_time()
    assert not verdict(correction, veto, messages=messages).accepted
    cold = time.process_time() - began
    began = time.process_time()
    for _ in range(5):
        verdict(correction, veto, messages=messages)
    assert (time.process_time() - began) / 5 < 0.02
    assert cold < 0.5  # the first look at 10k words of text


# --- properties ---------------------------------------------------------------------------------

ODD = st.text(st.characters(blacklist_categories=()), max_size=40)
IDS = st.from_regex(r"[A-Z]{1,3}-?[2-9]{4,8}", fullmatch=True)


@given(ODD)
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)
    assert fold(fold(text)) == fold(text)
    assert fold(clean(text)) == fold(text)


def _places(text: str) -> list[Correction]:
    return [
        says(f"I use {text} now."),
        says("ok", reasoning=f"so it is {text}"),
        says(order=text),
        says(order=f"ref {text}, please"),
        says(order=[[{"x": [text]}]]),
        says(order={text: None}),
    ]


@settings(max_examples=60)
@given(IDS, st.integers(0, 5), st.sampled_from([str, str.lower, str.upper]), st.booleans())
def test_a_copied_id_is_refused_wherever_it_stands(
    secret: str, place: int, case: Any, split: bool
) -> None:
    written = case(secret.replace("-", " ") if split else secret)
    facts = (f"close(case_id='{secret}')",)
    messages = (Message("user", "Please close my case. It is 1 of 10."),)
    said = verdict(_places(written)[place], facts=facts, messages=messages)
    assert not said.accepted
    known = (*messages, Message("user", f"It is {secret}."))
    if place != 4:
        assert verdict(_places(written)[place], facts=facts, messages=known).accepted


PIECES = st.sampled_from(
    (
        *SECRETS,
        *RUBRIC.split("\n"),
        *(m.content for m in HISTORY),
        '{"id": "D1008", "total": 85.0, "due": "2025-02-26 14:15:00", "who": "Emma Wilson"}',
        "Call (555) 010-7788 or write to emma.w@example.com before 5 March.",
    )
)


@settings(max_examples=80)
@given(st.lists(PIECES, min_size=1, max_size=4), st.lists(PIECES, max_size=4), st.data())
def test_a_quotation_from_history_is_never_refused(
    said: list[str], facts: list[str], data: st.DataObject
) -> None:
    words = data.draw(st.sampled_from(said)).split()
    start = data.draw(st.integers(0, len(words) - 1))
    quote = " ".join(words[start : data.draw(st.integers(start + 1, len(words)))])
    messages = tuple(Message("user", text) for text in said)
    outcome = verdict(
        says(quote, reasoning=quote, order=quote), facts=tuple(facts), messages=messages
    )
    assert outcome.accepted, (quote, outcome.reason)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=80)
@given(ODD, ODD, st.dictionaries(ODD, JSON, max_size=3), st.lists(ODD, max_size=3))
def test_no_text_makes_it_raise(
    content: str, rubric: str, arguments: dict[str, Any], facts: list[str]
) -> None:
    message = Message("assistant", content, rubric, (ToolCall(content, arguments),))
    said = verdict(
        Correction((), message),
        facts=(*facts, content),
        evidence=Evidence(rubric, {"x": arguments}),
    )
    said.reason.encode()  # fit to be printed


def test_absurd_values_do_not_make_it_raise() -> None:
    deep: Any = "C1001"
    for _ in range(50_000):
        deep = [deep]
    assert not verdict(says(order=deep)).accepted
    assert verdict(says(order=10**5000)).accepted
    assert verdict(says("9" * 6000)).accepted
    assert verdict(says("1,000," * 2000 + "1e999999 \ud800 NaN")).accepted
    assert verdict(says("twenty " * 5000)).accepted
