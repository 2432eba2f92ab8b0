"""A teacher that stalls, dies, raves or is spent: drafts stay, nothing is rewarded 0, words say so.

Real HTTP servers on loopback, and whole steps of the pocket worlds with the shipped model.
"""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from fakes import SpeakingPolicy, closes_with_the_code
from scripted_endpoint import KILL, STALL, Scripted, completion
from test_rti_teacher import FLAGS, KEY, TeacherValidator, answer, bound, case, context

from rti import InfrastructureError, RunError
from rti.words import explain

pytest.importorskip("torch", reason="needs the extra hf")

BUSY = (429, {"error": {"message": "slow down"}})
BROKEN = (500, {"error": {"message": "out of memory"}})
NO_JSON = (200, b'{"choices": [{"mess')
NO_CHOICE = (200, {"choices": []})
FAULTS = {
    "stalled": (STALL, "did not answer within 0.3 s"),
    "killed": (KILL, "broke off"),
    "429": (BUSY, "answered 429: slow down"),
    "500": (BROKEN, "answered 500: out of memory"),
    "malformed": (NO_JSON, "no JSON"),
    "empty": (NO_CHOICE, "no choices"),
}


@pytest.mark.parametrize(("fault", "words"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_tried_again_and_then_told(fault, words):
    with Scripted([fault]) as server:
        role = bound(TeacherValidator, context(server, model="m", timeout_s=0.3, retries=2))
        began = time.monotonic()
        with pytest.raises(InfrastructureError) as told:
            answer(role, *case())
        took = time.monotonic() - began
    assert len(server.asked) == 3
    assert took < 3 * 0.3 + 2 * 0.3 + 1.5  # tries, and pauses no longer than a try
    for part in (server.url, words, "3 times", "timeout_s = 0.3", "retries = 2"):
        assert part in str(told.value)
    assert role.usage["teacher/retries"] == 2
    assert role.usage["teacher/faults"] == 1


@pytest.mark.parametrize(("fault", "words"), FAULTS.values(), ids=FAULTS)
def test_a_fault_that_passes_is_forgotten(fault, words):
    with Scripted([fault, FLAGS]) as server:
        role = bound(TeacherValidator, context(server, model="m", timeout_s=0.3, retries=1))
        assert answer(role, *case()).harmful
    assert len(server.asked) == 2
    assert role.usage["teacher/faults"] == 0


def test_a_server_that_is_not_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        role = bound(TeacherValidator, context(None, model="m", retries=1), base_url=url)
        with pytest.raises(InfrastructureError, match="cannot be reached"):
            answer(role, *case())
        unnamed = bound(TeacherValidator, context(None), base_url=url)
        with pytest.raises(InfrastructureError, match="cannot be reached"):
            answer(unnamed, *case())  # not even to ask what it serves


def test_retry_after_is_kept_up_to_a_bound():
    with Scripted([(*BUSY, {"Retry-After": "0.4"}), FLAGS]) as server:
        role = bound(TeacherValidator, context(server, model="m", retries=1))
        began = time.monotonic()
        assert answer(role, *case()).harmful
        assert time.monotonic() - began >= 0.4
    with Scripted([(*BUSY, {"Retry-After": "3600"}), FLAGS]) as server:
        role = bound(TeacherValidator, context(server, model="m", retries=1, timeout_s=0.5))
        began = time.monotonic()
        assert answer(role, *case()).harmful
        assert 0.5 <= time.monotonic() - began < 3


def test_a_dead_teacher_is_left_alone_for_a_while_and_then_found_well():
    with Scripted([STALL, STALL, FLAGS]) as server:
        role = bound(TeacherValidator, context(server, model="m", timeout_s=0.4, retries=1))
        with pytest.raises(InfrastructureError):
            answer(role, *case())
        began = time.monotonic()
        with pytest.raises(InfrastructureError, match="left alone"):
            answer(role, *case())
        assert time.monotonic() - began < 0.3
        assert len(server.asked) == 2
        time.sleep(0.45)
        assert answer(role, *case()).harmful
        assert answer(role, *case()).harmful


# --- a whole step ---------------------------------------------------------------------------


@pytest.fixture
def step(pocket):
    """A step whose agent hands over at once, so that groups fail, with a teacher in the roles."""

    def run(url, *more):
        made = pocket(
            "rollout.max_new_tokens=20", "intervention.attempts=1", f"teacher.base_url={url}",
            "teacher.model=m", "teacher.timeout_s=0.4", "teacher.retries=1", "verifier.use=[]",
            "corrector.use=teacher", *more, trains=False,
        )  # fmt: skip
        made.collector.actor.policy = SpeakingPolicy(
            made.policy, made.renderer, closes_with_the_code
        )
        tasks = [t for t in made.environment.tasks("train") if t.family in ("AH", "A1")][:2]
        began = time.monotonic()
        batch = asyncio.run(made.collector.collect(tasks, 0))
        return made, batch, time.monotonic() - began

    return run


@pytest.mark.parametrize("section", ["validator", "verifier"])
@pytest.mark.parametrize("fault", [STALL, KILL, BUSY, BROKEN, NO_JSON], ids=list(FAULTS)[:5])
def test_a_step_goes_on_with_its_drafts(step, fault, section):
    script = [fault]
    if section == "verifier":  # the corrections come through, the verdicts do not
        script = [completion("need x . transfer"), fault]
    with Scripted(script) as server:
        _, batch, took = step(server.url, f"{section}.use=teacher", "teacher.concurrency=1")
    faulted = [r for r in batch.interventions if r.stage == "faulted"]
    assert faulted
    assert not any(r.trained or r.stage == "succeeded" for r in batch.interventions)
    assert len(batch.groups) == 2
    for group in batch.groups:  # every draft is there, with its own outcome, and none is a fault
        assert len(group.rollouts) == 4
        assert group.faults == 0
        assert not any(r.corrected for r in group.rollouts)
    [note] = batch.notes
    assert f"{len(faulted)} repairs broken off for infrastructure" in note
    assert server.url in note
    assert note in explain(batch)
    assert took < 12  # 4 repairs: the first two tries, then left alone


def test_a_key_that_a_server_sends_back_gets_into_no_record(step, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Scripted([(500, {"error": {"message": f"cannot serve {KEY}"}})]) as server:
        _, batch, _ = step(server.url, "validator.use=teacher")
    told = repr(batch) + explain(batch)
    assert "cannot serve ***" in told
    assert KEY not in told


def test_a_step_over_budget_keeps_its_drafts_and_the_next_intervenes_no_more(step):
    with Scripted([completion("bad . ask user to run it")]) as server:
        made, batch, _ = step(
            server.url, "validator.use=teacher", "teacher.max_requests=3",
            "teacher.concurrency=1",
        )  # fmt: skip
        assert len(server.asked) == 3
        assert any("3 of 3 requests ([teacher] max_requests)" in note for note in batch.notes)
        assert not any(r.corrected for g in batch.groups for r in g.rollouts)
        tasks = made.environment.tasks("train")[:1]
        after = asyncio.run(made.collector.collect(tasks, 0, step=1))
    assert len(server.asked) == 3
    assert after.interventions == ()
    assert after.notes == (
        "No intervention: the teacher's budget is spent: 3 of 3 requests ([teacher] max_requests).",
    )
    assert after.metrics["groups_fired"] == 1


def test_nonsense_in_every_role_accepts_nothing(step):
    replies = [
        "",
        "bad",
        "accept all",
        "{}",
        "<e>",
        "ignore all . accept",
        "ok bad ok",
        "x" * 10000,
    ]

    def nonsense(body):
        return completion(replies[len(server.asked) % len(replies)])

    with Scripted([nonsense]) as server:
        _, batch, _ = step(
            server.url, "validator.use=teacher", "verifier.use=teacher", "teacher.max_requests=0"
        )
    assert len(server.asked) >= 4
    assert not any(r.trained for r in batch.interventions)
    assert not any(r.stage == "faulted" for r in batch.interventions)


def test_a_teacher_without_chat_says_where_to_look(step):
    nowhere = pytest.raises(RunError, match=r"no such path.*/completions.*base_url")
    with Scripted([(404, {"error": {"message": "no such path"}})]) as server, nowhere:
        step(server.url, "validator.use=teacher")
