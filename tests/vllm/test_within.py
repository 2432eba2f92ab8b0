"""The vllm policy in this process: sampling, scoring and loading, against transformers."""

from __future__ import annotations

import asyncio
import json

import pytest
from vllm_real import LONGEST, apart, bound, named, perturbed, renderer_of, scored

from rti import InfrastructureError, Message, RequestKey, RunError, SamplingParams


@pytest.fixture(scope="module")
def local(folder, tmp_path_factory):
    policy = bound(folder, tmp_path_factory.mktemp("local"), mode="local")
    yield policy
    print(f"\n{policy.describe()}: {dict(policy.usage)}")
    asyncio.run(policy.close())


def test_an_engine_in_this_process_samples_scores_and_loads(local, folder, reference):
    renderer = renderer_of(folder)
    prompts = [
        renderer.prompt([Message("user", f"Tell me about {w}.")], ()) for w in ("tea", "ink")
    ]

    async def episode(i):
        [done] = await local.sample(
            [prompts[i]], SamplingParams(16), [RequestKey(rollout=i)], renderer.stop_ids
        )
        [scores] = await local.score([prompts[i]], [done.token_ids], 0)
        [fresh] = await local.score([prompts[i]], [(2000, 2001, 2002)], 0)
        return done, scores, fresh

    async def both():
        return await local.gather([episode(0), episode(1)])

    for prompt, (done, scores, fresh) in zip(prompts, asyncio.run(both()), strict=True):
        theirs = scored(reference, prompt, done.token_ids)
        assert apart([done.logprobs, scores], [theirs, theirs])[1] < 1e-3
        assert apart([fresh], [scored(reference, prompt, (2000, 2001, 2002))])[1] < 1e-3
    again = asyncio.run(both())
    assert [d.token_ids for d, _, _ in again] == [d.token_ids for d, _, _ in asyncio.run(both())]

    with perturbed(reference) as changed:
        asyncio.run(local.load(named(changed), 1))
        after = asyncio.run(local.score(prompts, [(2000, 2001, 2002)] * 2, 1))
        theirs = [scored(changed, p, (2000, 2001, 2002)) for p in prompts]
        assert apart(after, theirs)[1] < 1e-3
        assert apart(after, [f for _, _, f in again])[1] > 0.1
    assert local.version == 1

    params = SamplingParams(
        64, schema=json.dumps({"type": "object", "additionalProperties": False})
    )
    key = RequestKey(role="validator")
    [done] = asyncio.run(local.sample(prompts[:1], params, [key], renderer.stop_ids))
    assert done.finish == "length" or json.loads(renderer.parse(done.token_ids).content) == {}

    long = (tuple(range(100, 100 + LONGEST + 1)),)
    with pytest.raises(RunError, match="max_context"):
        asyncio.run(local.sample(long, SamplingParams(4), [RequestKey()], (2,)))
    with pytest.raises(InfrastructureError, match="max_model_len"):
        asyncio.run(local.score(long, [(5,)], 1))
