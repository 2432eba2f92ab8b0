"""The teacher's budget: hard under concurrency, kept across restarts, spent in words."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_endpoint import STALL, Scripted, chat
from test_rti_teacher import (
    ACCEPTS,
    EVIDENCE,
    FLAGS,
    KEY,
    TeacherValidator,
    answer,
    bound,
    case,
    context,
)

from rti import InfrastructureError, RunError
from rti.config import TeacherConfig
from rti_teacher.budget import FILE, Budget, Tokens


def stored(folder):
    return json.loads((folder / FILE).read_text())


def until_refused(role, option):
    """How many answers come before the budget is spent."""
    made = 0
    with pytest.raises(InfrastructureError, match=rf"\[teacher\] {option}"):  # noqa: PT012
        while made < 100:
            answer(role, *case())
            made += 1
    return made


def test_requests_end_at_the_limit_and_say_so(tmp_path):
    with Scripted([FLAGS]) as server:
        role = bound(TeacherValidator, context(server, out=tmp_path, max_requests=2))
        assert role.spent == ""
        for _ in range(2):
            answer(role, *case())
        said = "the teacher's budget is spent: 2 of 2 requests ([teacher] max_requests)"
        assert role.spent == said
        with pytest.raises(InfrastructureError) as spent:
            answer(role, *case())
        assert said in str(spent.value)
        assert len(server.asked) == 2
        # A run that goes on from a checkpoint has what is left, and no more.
        again = bound(TeacherValidator, context(server, out=tmp_path, max_requests=3))
        answer(again, *case())
        assert again.spent.endswith("3 of 3 requests ([teacher] max_requests)")
    assert len(server.asked) == 3
    record = stored(tmp_path)
    assert (record["requests"], record["prompt_tokens"], record["reply_tokens"]) == (3, 30, 15)


def test_tries_count_as_requests():
    with Scripted([(500, {"error": "no"})]) as server:
        role = bound(TeacherValidator, context(server, retries=5, max_requests=2))
        with pytest.raises(InfrastructureError, match="2 of 2 requests"):
            answer(role, *case())
    assert len(server.asked) == 2


def test_a_request_that_might_not_fit_is_not_made(tmp_path):
    """384 reply tokens and the prompt are set aside; what was really used is far less."""
    with Scripted([chat(FLAGS, usage=(700, 20))]) as server:
        role = bound(TeacherValidator, context(server, out=tmp_path, max_tokens=6000))
        made = until_refused(role, "max_tokens")
        assert role.spent
    assert 1 < made == len(server.asked)
    assert made * 720 <= 6000 < made * 720 + 384 + 4000
    assert stored(tmp_path)["spent"] == role.spent


def test_requests_at_once_do_not_outspend_the_budget_together():
    with Scripted([chat(FLAGS, usage=(100, 10))], delay=0.02) as server:
        role = bound(TeacherValidator, context(server, concurrency=50, max_tokens=9000))
        history, draft, _ = case()

        async def storm():
            looks = [role.validate(draft, history, EVIDENCE) for _ in range(200)]
            return await asyncio.gather(*looks, return_exceptions=True)

        outcomes = asyncio.run(storm())
    made = [o for o in outcomes if not isinstance(o, InfrastructureError)]
    assert len(made) == len(server.asked)
    assert role.usage["teacher/prompt_tokens"] + role.usage["teacher/reply_tokens"] <= 9000
    # Those that wait take what others set aside and did not need: about 110 a request.
    assert len(made) > 9000 // 1500 * 2
    assert server.most_at_once < 20


def test_money_has_a_limit_too(tmp_path):
    prices = {"price_in": 1000.0, "price_out": 5000.0, "max_cost": 10.0}
    with Scripted([chat(FLAGS, usage=(1000, 100))]) as server:
        role = bound(TeacherValidator, context(server, out=tmp_path, **prices))
        until_refused(role, "max_cost")
    cost = role.usage["teacher/cost"]
    assert 1.5 <= cost <= 10.0
    assert cost == pytest.approx(1.5 * len(server.asked))
    assert stored(tmp_path)["cost"] == pytest.approx(cost)


def test_an_endpoint_that_tells_no_counts_is_charged_what_was_set_aside():
    with Scripted([chat(FLAGS, usage=None)]) as server:
        role = bound(TeacherValidator, context(server, max_tokens=10**6))
        answer(role, *case())
    assert role.usage["teacher/estimated"] == 1
    assert role.usage["teacher/reply_tokens"] == 384
    assert role.usage["teacher/prompt_tokens"] > 500


def test_what_was_under_way_when_a_run_died_counts_in_full(tmp_path):
    with Scripted([STALL]) as server:
        role = bound(TeacherValidator, context(server, out=tmp_path, timeout_s=20.0))

        history, draft, _ = case()

        async def killed():
            look = asyncio.ensure_future(role.validate(draft, history, EVIDENCE))
            while not server.asked:  # noqa: ASYNC110 - the server is another thread
                await asyncio.sleep(0.01)
            left = stored(tmp_path)  # what a kill at this moment leaves
            look.cancel()
            await asyncio.gather(look, return_exceptions=True)
            await role.close()
            return left

        during = asyncio.run(killed())
    assert (during["requests"], during["reply_tokens"]) == (1, 384)
    assert stored(tmp_path)["reply_tokens"] == 384  # cancelled: nobody knows what it cost


@pytest.mark.parametrize("text", ["", "{", "[]", '{"requests": 3}', '{"requests": -1}'])
def test_a_usage_file_that_makes_no_sense_is_no_empty_budget(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(RunError, match=FILE):
        Budget(TeacherConfig(max_requests=5), tmp_path / FILE)


def test_the_key_is_in_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    script = [
        (429, {"error": {"message": f"slow down, {KEY}"}}),
        (400, {"error": {"message": f"no seed for {KEY}", "param": "seed"}}),
        (500, {"error": {"message": f"down, {KEY}"}}),
        chat(ACCEPTS),
    ]
    with Scripted(script) as server:
        role = bound(TeacherValidator, context(server, out=tmp_path, retries=3, timeout_s=1.0))
        answer(role, *case())
    written = "".join(p.read_text() for p in tmp_path.rglob("*") if p.is_file())
    assert "seed" in written
    assert "seed" in "".join(role.notes)
    assert KEY not in written + "".join(role.notes)


amounts = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 100))


@given(st.lists(amounts, max_size=30), st.integers(1, 400), st.integers(0, 12))
def test_no_order_of_requests_outspends_a_budget(requests, tokens, count):
    """Each takes at most what it set aside: then the sum stays within the limit."""

    async def go():
        budget = Budget(TeacherConfig(max_tokens=tokens, max_requests=count))

        async def one(prompt, reply, used):
            need = Tokens(prompt, reply)
            await budget.reserve(need)
            await asyncio.sleep(0)
            known = used <= 90
            took = Tokens(prompt * used // 100, reply * used // 100) if known else None
            budget.settle(need, took)

        made = await asyncio.gather(*(one(*r) for r in requests), return_exceptions=True)
        return budget, [m for m in made if m is None], made

    budget, done, made = asyncio.run(go())
    assert budget.used.prompt_tokens + budget.used.reply_tokens <= tokens
    assert budget.used.requests == len(done) <= (count or len(done))
    assert all(m is None or isinstance(m, InfrastructureError) for m in made)
    assert bool(budget.spent) or len(done) == len(requests)
