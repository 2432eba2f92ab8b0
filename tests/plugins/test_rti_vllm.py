"""The vLLM policy's requests: what it asks, what it makes of every kind of answer, and when."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rti import (
    Completion,
    ConfigError,
    InfrastructureError,
    RequestKey,
    RunError,
    SamplingParams,
    StaleVersionError,
)

pytest.importorskip("httpx")
pytest.importorskip("safetensors.torch")
from fake_vllm_server import (
    Held,
    changed,
    cut,
    logprob,
    raw,
    running,
    stall,
    status,
)
from vllm_cases import PROMPT, STOP, bound, model_with, one, use, weights

from rti_vllm import client, endpoint
from rti_vllm.server import free_port
from rti_vllm.wire import BadReply, read_cached_scores, read_completion, read_scores

COMPLETIONS, GENERATE = "/v1/completions", "/inference/v1/generate"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(endpoint, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(client, "COOLDOWN_SECONDS", 0.2)
    monkeypatch.delenv("VLLM_API_KEY", raising=False)


@pytest.fixture
def model(tmp_path):
    return model_with(tmp_path / "model")


@pytest.fixture
def fake():
    with running() as server:
        yield server


@pytest.fixture
def policy(model, fake):
    return bound(model, base_urls=[fake.url + "/v1/"], retries=2, timeout_s=5.0)


# --- what is asked ------------------------------------------------------------------------------


def test_a_completion_has_the_servers_ids_and_logprobs_and_the_policys_version(policy, fake):
    done = use(policy, one)
    assert done.token_ids[-1] in STOP
    assert done.finish == "stop"
    assert done.logprobs == tuple(logprob(t) for t in done.token_ids)
    assert isinstance(done, Completion)
    assert done.policy_version == 0
    assert policy.usage["sampled_tokens"] == len(done.token_ids)
    assert policy.usage["retries"] == 0


def test_without_room_a_completion_ends_by_length(policy):
    done = use(policy, lambda p: one(p, max_new_tokens=2))
    assert (len(done.token_ids), done.finish) == (2, "length")


def test_the_request_is_ids_alone_and_leaves_no_parameter_to_the_server(policy, fake):
    use(policy, lambda p: one(p, rollout=3))
    [body] = fake.bodies(COMPLETIONS)
    assert body["prompt"] == list(PROMPT)
    assert body["model"] == "fake"
    assert body["seed"] == RequestKey(task="t", rollout=3).seed64() & (2**63 - 1)
    wanted = {
        "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "stop_token_ids": [2],
        "ignore_eos": True, "max_tokens": 8, "return_token_ids": True, "logprobs": 0,
    }  # fmt: skip
    assert {k: body[k] for k in wanted} == wanted
    assert "structured_outputs" not in body


def test_equal_keys_draw_equal_tokens_and_others_do_not(policy):
    async def three(p):
        return await one(p, 1), await one(p, 1), await one(p, 2)

    first, again, other = use(policy, three)
    assert first.token_ids == again.token_ids != other.token_ids


def test_a_schema_constrains_and_lets_the_model_end_by_its_own_token(policy, fake):
    schema = {"type": "object"}
    use(policy, lambda p: one(p, role="validator", params={"schema": json.dumps(schema)}))
    [body] = fake.bodies(COMPLETIONS)
    assert body["structured_outputs"] == {"json": schema}
    assert body["ignore_eos"] is False
    with pytest.raises(RunError, match="no JSON"):
        use(policy, lambda p: one(p, params={"schema": "{"}))


def test_a_key_is_sent_and_never_told(policy, fake, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "hush-hush")
    use(policy, one)
    assert all(h["authorization"] == "Bearer hush-hush" for _, _, h in fake.seen)
    fake.script(COMPLETIONS, status(401, "Unauthorized"))
    with pytest.raises(RunError, match="VLLM_API_KEY") as caught:
        use(policy, one)
    assert "hush" not in str(caught.value) + repr(policy) + repr(policy._remote.client)


def test_a_model_the_servers_do_not_have_is_told(model, fake):
    with pytest.raises(RunError, match="does not serve model = 'other'; it serves 'fake'"):
        use(bound(model, base_urls=[fake.url], served_model="other"), one)


# --- faults -------------------------------------------------------------------------------------


def _drop(name):
    return changed(lambda choice: choice.pop(name) and None)


FAULTS = {
    "429": status(429, "slow down", retry_after="0"),
    "500": status(500),
    "502": status(502),
    "503": status(503),
    "malformed": raw(b'{"choices": [{'),
    "html": raw(b"<html>gateway</html>"),
    "no choices": raw(b"{}"),
    "no object": raw(b"[1]"),
    "cut": cut,
    "no ids": _drop("token_ids"),
    "no logprobs": _drop("logprobs"),
    "no finish": _drop("finish_reason"),
    "one logprob short": changed(lambda c: c["logprobs"]["token_logprobs"].pop() and None),
    "logprob null": changed(lambda c: c["logprobs"]["token_logprobs"].__setitem__(0, None)),
    "logprob NaN": changed(lambda c: c["logprobs"]["token_logprobs"].__setitem__(0, float("nan"))),
    "end token cut off": changed(
        lambda c: [part.pop() for part in (c["token_ids"], c["logprobs"]["token_logprobs"])][:0]
    ),
    "aborted": changed(lambda c: c.__setitem__("finish_reason", "abort")),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_passes_costs_a_retry(name, policy, fake):
    fake.script(COMPLETIONS, FAULTS[name])
    done = use(policy, one)
    assert done.finish == "stop"
    assert policy.usage["retries"] == 1


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_stays_is_the_infrastructures_within_the_bound_of_tries(name, policy, fake):
    fake.script(COMPLETIONS, *[FAULTS[name]] * 9)
    with pytest.raises(InfrastructureError, match=r"Given up after 3 tries .*retries") as caught:
        use(policy, one)
    assert fake.url in str(caught.value)
    assert len(fake.bodies(COMPLETIONS)) == 3


def test_a_stalled_server_costs_its_timeout_and_no_more(model, fake):
    policy = bound(model, base_urls=[fake.url], retries=1, timeout_s=0.3)
    fake.script(COMPLETIONS, stall(5), stall(5))
    began = time.monotonic()
    with pytest.raises(InfrastructureError, match=r"no answer to /v1/completions within 0\.3 s"):
        use(policy, one)
    assert 0.6 <= time.monotonic() - began < 2.0


def test_a_server_that_is_not_there_is_told_with_its_url(model):
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(InfrastructureError, match="ConnectError") as caught:
        use(bound(model, base_urls=[url], retries=1), one)
    assert url in str(caught.value)


def test_a_refusal_is_not_repeated_and_told_by_whose_prompt_it_was(policy, fake):
    refusal = status(400, "This model's maximum context length is 64 tokens. However, ...")
    fake.script(COMPLETIONS, refusal, refusal, status(400, "Token id 9 is out of vocabulary"))
    with pytest.raises(RunError, match=r"max_model_len is 64\. Set \[rollout\] max_context"):
        use(policy, one)
    with pytest.raises(InfrastructureError, match="max_model_len"):
        use(policy, lambda p: one(p, role="validator"))
    with pytest.raises(RunError, match="out of vocabulary"):
        use(policy, one)
    assert policy.usage["retries"] == 0


def test_logits_instead_of_logprobs_are_refused(policy, fake):
    fake.script(COMPLETIONS, changed(lambda c: c["logprobs"]["token_logprobs"].__setitem__(0, 3.5)))
    with pytest.raises(RunError, match="--logprobs-mode raw_logprobs"):
        use(policy, one)


# --- several servers ----------------------------------------------------------------------------


def test_requests_go_to_the_least_loaded_server(model, fake):
    with running() as slow:
        held = Held()
        slow.script(COMPLETIONS, held)
        policy = bound(model, base_urls=[fake.url, slow.url], timeout_s=30.0)

        async def many(p):
            first = [asyncio.create_task(one(p, i)) for i in range(2)]  # one each
            await asyncio.to_thread(held.came.wait, 10)
            for i in range(12):
                await one(p, 100 + i)
            assert (len(fake.bodies(COMPLETIONS)), len(slow.bodies(COMPLETIONS))) == (13, 1)
            held.go.set()
            await asyncio.gather(*first)

        use(policy, many)


def test_no_more_than_so_many_requests_are_under_way(model, fake):
    fake.slow = 0.05
    policy = bound(model, base_urls=[fake.url], connections=3)
    use(policy, lambda p: asyncio.gather(*(one(p, i) for i in range(12))))
    assert fake.busiest == 3


def test_a_dead_server_is_left_out_and_gets_the_weights_when_it_is_back(model, fake):
    port = free_port()
    policy = bound(model, base_urls=[fake.url, f"http://127.0.0.1:{port}"], retries=3)

    async def scene(p):
        with running(port) as other:
            await p.load(weights(0.5), 1)
            assert other.shift == 0.5
        await asyncio.gather(*(one(p, i) for i in range(6)))
        assert p.usage["retries"] > 0
        with running(port) as other:  # another process on that port, with weights of its own
            other.shift = 9.0
            await asyncio.sleep(0.25)
            done = await asyncio.gather(*(one(p, i) for i in range(12)))
            assert other.bodies(COMPLETIONS)
            assert other.shift == 0.5
            return done

    for completion in use(policy, scene):
        assert completion.logprobs == tuple(logprob(t, 0.5) for t in completion.token_ids)


def test_all_servers_take_new_weights(model, fake):
    with running() as other:
        policy = bound(model, base_urls=[fake.url, other.url])
        use(policy, lambda p: p.load(weights(1.5), 1))
        assert (fake.shift, other.shift) == (1.5, 1.5)
        assert fake.paths() == ["/collective_rpc", "/reset_prefix_cache"]


# --- scores -------------------------------------------------------------------------------------


def test_a_score_rests_on_the_prefix_cache_where_the_server_vouches_for_it(policy, fake):
    fake.cached = len(PROMPT) - 1
    [scores] = use(policy, lambda p: p.score([PROMPT], [(9, 10, 2)], 0))
    assert scores == (logprob(9), logprob(10), logprob(2))
    assert fake.paths() == [GENERATE]
    [body] = fake.bodies(GENERATE)
    assert body["sampling_params"]["skip_reading_prefix_cache"] is False
    assert body["sampling_params"]["detokenize"] is False
    assert policy.usage["scored_tokens"] == 3


@pytest.mark.parametrize("how", ["completion cached", "not told", "500", "other ids"])
def test_a_score_the_cache_cannot_give_is_computed_again(how, policy, fake):
    if how == "completion cached":
        fake.cached = len(PROMPT)
    if how == "not told":
        fake.cached = None
        fake.scored = lambda body: {"prompt_logprobs": [None] * 6, "usage": {}}
    if how == "500":
        fake.script(GENERATE, status(500, "Out of range float values are not JSON compliant"))
    if how == "other ids":
        fake.scored = lambda body: {
            "prompt_logprobs": [None] + [{"1": {"logprob": -1.0}}] * (len(body["token_ids"]) - 1),
            "usage": {"prompt_tokens_details": {"cached_tokens": 0}},
        }
    [scores] = use(policy, lambda p: p.score([PROMPT], [(9, 10, 2)], 0))
    assert scores == (logprob(9), logprob(10), logprob(2))
    assert fake.paths() == [GENERATE, COMPLETIONS]
    assert policy.usage["scores_recomputed"] == 1


def test_a_server_without_the_endpoint_is_asked_for_it_once(policy, fake):
    fake.scales_out = False

    async def twice(p):
        return await p.score([PROMPT], [(9, 2)], 0), await p.score([PROMPT], [(9, 2)], 0)

    first, second = use(policy, twice)
    assert first == second == [(logprob(9), logprob(2))]
    assert fake.paths() == [GENERATE, COMPLETIONS, COMPLETIONS]


def test_score_cached_can_be_switched_off(model, fake):
    policy = bound(model, base_urls=[fake.url], score_cached=False)
    use(policy, lambda p: p.score([PROMPT], [(9, 2)], 0))
    assert fake.paths() == [COMPLETIONS]


# --- versions -----------------------------------------------------------------------------------


def test_scores_are_of_the_asked_version_or_none(policy, fake):
    async def scene(p):
        await p.load(weights(0.25), 4)
        assert p.version == 4
        with pytest.raises(StaleVersionError, match="version 3, but they are version 4"):
            await p.score([PROMPT], [(9, 2)], 3)
        assert GENERATE not in fake.paths()
        held = Held()
        fake.script(GENERATE, held)
        slow = asyncio.create_task(p.score([PROMPT], [(9, 2)], 4))
        await asyncio.to_thread(held.came.wait, 10)
        await p.load(weights(0.5), 5)
        held.go.set()
        with pytest.raises(StaleVersionError, match="changed meanwhile"):
            await slow

    use(policy, scene)


def test_a_sample_that_saw_a_load_is_counted_and_keeps_the_version_it_was_sent_under(policy, fake):
    async def scene(p):
        await one(p)  # the server is known
        held = Held()
        fake.script(COMPLETIONS, held)
        slow = asyncio.create_task(one(p))
        await asyncio.to_thread(held.came.wait, 10)
        await p.load(weights(0.5), 1)
        held.go.set()
        late, fresh = await slow, await one(p)
        return late, fresh

    late, fresh = use(policy, scene)
    assert (late.policy_version, fresh.policy_version) == (0, 1)
    assert policy.usage["stale_samples"] == 1


def test_a_retry_is_a_new_dispatch(policy, fake):
    async def scene(p):
        await one(p)
        held = Held(status(500))
        fake.script(COMPLETIONS, held)
        slow = asyncio.create_task(one(p))
        await asyncio.to_thread(held.came.wait, 10)
        await p.load(weights(0.5), 1)
        held.go.set()
        return await slow

    done = use(policy, scene)
    assert done.policy_version == 1
    assert done.logprobs == tuple(logprob(t, 0.5) for t in done.token_ids)
    assert policy.usage["stale_samples"] == 0


# --- the rest -----------------------------------------------------------------------------------


def test_gather_keeps_the_order_and_raises_the_first_error_once_all_ended(policy):
    ended = []

    async def episode(i, error=None):
        await asyncio.sleep(0.02 * i)
        ended.append(i)
        if error:
            raise error
        return i

    async def scene(p):
        assert await p.gather([episode(2), episode(0), episode(1)]) == [2, 0, 1]
        ended.clear()
        with pytest.raises(ValueError, match="first"):
            await p.gather([episode(2), episode(1, ValueError("first")), episode(0, KeyError("x"))])
        return list(ended)

    assert use(policy, scene) == [0, 1, 2]


def test_a_policy_serves_one_event_loop_after_another(policy):
    async def twice():
        return await asyncio.gather(*(one(policy, i) for i in range(4)))

    assert asyncio.run(twice()) == asyncio.run(twice())


def test_options_that_do_not_go_together_are_told(model):
    with pytest.raises(ConfigError, match="leave out base_urls"):
        bound(model, mode="local", base_urls=["http://127.0.0.1:1"])
    with pytest.raises(ValueError, match="a list of URLs"):
        bound(model, base_urls=["127.0.0.1:8000"])


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "choices token_ids logprobs token_logprobs finish_reason prompt_logprobs "
                "usage prompt_tokens_details cached_tokens 9 logprob".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(reply=_json)
def test_no_answer_whatever_it_is_ends_in_a_traceback(reply):
    for read in (
        lambda: read_completion(reply, STOP, ""),
        lambda: read_scores(reply, (9,)),
        lambda: read_cached_scores(reply, PROMPT, (9,)),
    ):
        with contextlib.suppress(BadReply, RunError):
            read()


def test_sampling_params_reach_the_server_in_evaluation(policy, fake):
    params = SamplingParams(4, temperature=0.0, top_p=0.5)
    use(policy, lambda p: p.sample([PROMPT], params, [RequestKey()], STOP))
    [body] = fake.bodies(COMPLETIONS)
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.0, 0.5, 4)
