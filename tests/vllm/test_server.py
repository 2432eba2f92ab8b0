"""The vllm policy against the real vLLM in a server of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from vllm_real import LONGEST, apart, bound, named, perturbed, renderer_of, scored

from rti import (
    InfrastructureError,
    Message,
    RequestKey,
    RunError,
    SamplingParams,
    StaleVersionError,
    Tool,
)

ORDERS = Tool(
    "get_order",
    "Look an order up.",
    {
        "type": "object",
        "properties": {"order_id": {"type": "string", "description": "The order's number."}},
        "required": ["order_id"],
    },
)


@pytest.fixture(scope="module")
def renderer(folder):
    return renderer_of(folder)


def _keys(count, **fields):
    return [RequestKey(seed=1, rollout=i, **fields) for i in range(count)]


@pytest.fixture(scope="module")
def rollouts(policy, renderer):
    """Turns of multi-turn tool conversations: (prompt, completion)."""

    async def rollout(i):
        messages = [
            Message("system", "You are a helpful support agent. Use the tools."),
            Message("user", f"Where is my order {1000 + i}? Please look it up and tell me."),
        ]
        turns = []
        for k in range(3):
            prompt = renderer.prompt(messages, [ORDERS])
            [completion] = await policy.sample(
                [prompt], SamplingParams(40), [RequestKey(rollout=i, turn=k)], renderer.stop_ids
            )
            turns.append((prompt, completion))
            said = renderer.parse(completion.token_ids)
            told = json.dumps({"order_id": str(1000 + i), "status": ["packed", "sent", "late"][k]})
            call = said.tool_calls[0].id if said.tool_calls else "0"
            messages += [said, Message("tool", told, tool_call_id=call)]
        return turns

    async def all_of_them():
        return await policy.gather([rollout(i) for i in range(7)])

    return [turn for turns in asyncio.run(all_of_them()) for turn in turns]


def test_rollout_logprobs_agree_with_transformers(rollouts, reference):
    ours = [c.logprobs for _, c in rollouts]
    theirs = [scored(reference, prompt, c.token_ids) for prompt, c in rollouts]
    mean, most, count = apart(ours, theirs)
    print(f"\nrollouts: {count} tokens, mean {mean:.2e}, max {most:.2e}")
    assert count >= 500
    assert max(len(prompt) for prompt, _ in rollouts) < LONGEST
    assert mean < 1e-4
    assert most < 1e-3


def test_a_completion_holds_its_end_of_turn_token(policy, renderer):
    """Greedy decoding of a question this model answers in a few words."""
    prompt = renderer.prompt([Message("user", "Say hi.")], ())
    params = SamplingParams(60, temperature=0.0)
    [done] = asyncio.run(policy.sample([prompt], params, _keys(1), renderer.stop_ids))
    assert done.finish == "stop"
    assert done.token_ids[-1] in renderer.stop_ids
    assert len(done.logprobs) == len(done.token_ids)
    [cut] = asyncio.run(policy.sample([prompt], SamplingParams(2), _keys(1), renderer.stop_ids))
    assert (cut.finish, len(cut.token_ids)) == ("length", 2)


def test_logprobs_are_of_the_raw_distribution_at_temperature_1(policy, renderer, reference):
    prompt = renderer.prompt([Message("user", "Tell me about tea.")], ())
    params = SamplingParams(12, temperature=0.5, top_p=0.8)
    [done] = asyncio.run(policy.sample([prompt], params, _keys(1), renderer.stop_ids))
    _, most, _ = apart([done.logprobs], [scored(reference, prompt, done.token_ids)])
    assert most < 1e-3


def test_equal_seeds_draw_equal_tokens_in_any_company(policy, renderer):
    prompt = renderer.prompt([Message("user", "Name an animal.")], ())
    params, keys = SamplingParams(16), _keys(6)

    async def draw(chosen):
        done = await policy.sample([prompt] * len(chosen), params, chosen, renderer.stop_ids)
        return [c.token_ids for c in done]

    together, alone = asyncio.run(draw(keys)), asyncio.run(draw(keys[3:4]))
    assert together[3] == alone[0]
    assert len(set(together)) > 1


def test_scores_equal_what_was_sampled_with_and_without_the_prefix_cache(policy, rollouts):
    some = rollouts[2::3]  # last turns: nothing after them has put them into the cache
    prompts, done = [p for p, _ in some], [c for _, c in some]
    completions = [c.token_ids for c in done]
    seconds = {}
    for cached in (True, False):
        policy._remote.score_cached = cached
        began = time.perf_counter()
        scores = asyncio.run(policy.score(prompts, completions, policy.version))
        seconds[cached] = time.perf_counter() - began
        mean, most, count = apart(scores, [c.logprobs for c in done])
        print(f"\nscores (cached {cached}): {count} tokens, mean {mean:.2e}, max {most:.2e}")
        assert most < 1e-3
    policy._remote.score_cached = True
    print(f"seconds: {seconds}; computed again: {policy.usage['scores_recomputed']:g}")


def test_what_a_score_costs(policy, reference):
    """Fresh completions after long cached prompts, the case of a correction.

    The three prompts are more than vLLM computes in one step by default: with chunked prefill a
    seeded request would end its CPU engine here.
    """
    prompts = [tuple(range(100 + i, 800 + i)) for i in range(3)]
    completions = [tuple(range(2000 + i, 2032 + i)) for i in range(3)]

    async def timed(work):
        began = time.perf_counter()
        result = await work
        return time.perf_counter() - began, result

    async def scene():
        first, _ = await timed(policy.sample(prompts, SamplingParams(1), _keys(3), (2,)))
        warm, _ = await timed(policy.sample(prompts, SamplingParams(1), _keys(3), (2,)))
        cached, scores = await timed(policy.score(prompts, completions, 0))
        policy._remote.score_cached = False
        whole, again = await timed(policy.score(prompts, completions, 0))
        policy._remote.score_cached = True
        return first, warm, cached, whole, scores, again

    first, warm, cached, whole, scores, again = asyncio.run(scene())
    print(
        f"\n700-token prompts: prefill of sampling {first:.2f} s, cached {warm:.2f} s; score of 32 "
        f"tokens on the cache {cached:.2f} s, all computed again {whole:.2f} s"
    )
    theirs = [scored(reference, p, c) for p, c in zip(prompts, completions, strict=True)]
    assert apart(scores, theirs)[1] < 1e-3
    assert apart(again, theirs)[1] < 1e-3
    assert policy.usage["restarts"] == 0


def test_a_schema_constrains_the_answer(policy, renderer):
    schema = {
        "type": "object",
        "properties": {
            "harmful": {"type": "boolean"},
            "kind": {"type": "string", "enum": ["none", "wrong-tool"]},
        },
        "required": ["harmful", "kind"],
        "additionalProperties": False,
    }
    prompt = renderer.prompt([Message("user", "Was this turn harmful? Answer in JSON.")], ())
    params = SamplingParams(96, schema=json.dumps(schema))
    keys = _keys(3, role="validator")
    done = asyncio.run(policy.sample([prompt] * 3, params, keys, renderer.stop_ids))
    whole = [c for c in done if c.finish == "stop"]
    assert whole
    for completion in whole:
        answer = json.loads(renderer.parse(completion.token_ids).content)
        assert set(answer) == {"harmful", "kind"}
        assert answer["kind"] in ("none", "wrong-tool")


def test_a_prompt_that_does_not_fit_is_told(policy):
    long = (tuple(range(100, 100 + LONGEST + 1)),)

    async def ask(role):
        return await policy.sample(long, SamplingParams(4), _keys(1, role=role), (2,))

    with pytest.raises(RunError, match=rf"max_model_len is {LONGEST}\. Set \[rollout\]"):
        asyncio.run(ask("agent"))
    with pytest.raises(InfrastructureError, match="max_model_len"):
        asyncio.run(ask("verifier"))


def test_it_is_seen_that_the_server_runs_on_a_cpu_and_does_not_tie_the_head(policy):
    from rti_vllm.fleet import INFO_SECONDS, SERVER_INFO, device_of, tied_there

    async def ask(path):
        client = policy._remote.client
        return await client.send(client.endpoints[0], path, None, INFO_SECONDS)

    assert device_of(asyncio.run(ask(SERVER_INFO))) == "cpu"
    assert tied_there(asyncio.run(ask("/v1/models"))) is False


def test_after_a_push_vllm_says_what_the_trainer_says(policy, rollouts, reference):
    some = rollouts[::6]
    prompts, completions = [p for p, _ in some], [c.token_ids for _, c in some]

    def score(version):
        return asyncio.run(policy.score(prompts, completions, version))

    before = score(0)
    with perturbed(reference) as changed:
        began = time.perf_counter()
        asyncio.run(policy.load(named(changed), 1))
        seconds = time.perf_counter() - began
        after = score(1)
        theirs = [scored(changed, *pair) for pair in zip(prompts, completions, strict=True)]
        mean, most, count = apart(after, theirs)
        moved = apart(after, before)[1]
        print(f"\npush: {seconds:.2f} s; {count} tokens, mean {mean:.2e}, max {most:.2e}; "
              f"moved {moved:.2f}")  # fmt: skip
        assert moved > 0.1
        assert most < 1e-3
        keys = _keys(len(prompts))
        done = asyncio.run(policy.sample(prompts, SamplingParams(12), keys, (2,)))
        theirs = [scored(changed, p, c.token_ids) for p, c in zip(prompts, done, strict=True)]
        assert apart([c.logprobs for c in done], theirs)[1] < 1e-3
        assert {c.policy_version for c in done} == {1}
        with pytest.raises(StaleVersionError):
            score(0)
    asyncio.run(policy.load(named(reference), 0))
    assert apart(score(0), before)[1] < 1e-3


def test_a_server_killed_in_the_middle_is_started_again_on_the_same_weights(
    policy, renderer, reference
):
    prompt = renderer.prompt([Message("user", "Count to a hundred, please.")], ())

    async def scene():
        asked = asyncio.create_task(
            policy.sample([prompt] * 4, SamplingParams(100), _keys(4), renderer.stop_ids)
        )
        await asyncio.sleep(1.0)
        guard = policy._remote.fleet.server._process.pid
        os.kill(_child_of(guard), signal.SIGKILL)
        return await asked

    done = asyncio.run(scene())
    assert policy.usage["restarts"] == 1
    print(f"\nstarts: {policy.usage['start_seconds']:.0f} s together")
    theirs = [scored(reference, prompt, c.token_ids) for c in done]
    assert apart([c.logprobs for c in done], theirs)[1] < 1e-3


PARENT = """
import asyncio, sys
sys.path[:0] = {paths!r}
from pathlib import Path
from vllm_real import bound

async def main():
    policy = bound(Path({folder!r}), Path({out!r}))
    opening = asyncio.create_task(policy._remote.fleet.open())
    while policy._remote.fleet.server._process is None:
        await asyncio.sleep(0.1)
    print(policy._remote.fleet.server._process.pid, flush=True)
    await opening

asyncio.run(main())
"""


def test_no_process_of_vllm_outlives_a_run_that_is_killed(folder, tmp_path):
    """Killed while it starts, once vLLM has its own children."""
    script = tmp_path / "parent.py"
    here = str(Path(__file__).parent)
    script.write_text(
        PARENT.format(paths=[here, *sys.path], folder=str(folder), out=str(tmp_path / "out"))
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as parent:
        guard = int(parent.stdout.readline())
        ends = time.monotonic() + 240
        while len(_group(guard)) < 3 and time.monotonic() < ends:
            time.sleep(0.5)
        group = _group(guard)
        assert len(group) >= 3  # the guard, the server, and its engine
        parent.kill()
        parent.wait()
    ends = time.monotonic() + 20
    while _group(guard) and time.monotonic() < ends:
        time.sleep(0.2)
    assert not _group(guard)


def _child_of(pid):
    [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def _group(leader):
    """Living processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, _, group = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:3]
        except OSError:
            continue
        if int(group) == leader and state != "Z":
            found.append(int(entry.name))
    return found


@pytest.mark.gpu
def test_sleep_and_wake_around_an_update_on_a_gpu(folder, reference, renderer, tmp_path):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU and the distribution vllm")
    policy = bound(folder, tmp_path, sleep_mode=True, gpu_memory_utilization=0.3)
    prompt = renderer.prompt([Message("user", "Say hi.")], ())

    async def scene():
        await policy.load(named(reference), 0)
        awake = torch.cuda.mem_get_info()[0]
        await policy.sleep()
        asleep = torch.cuda.mem_get_info()[0]
        await policy.load(named(reference), 1)
        [done] = await policy.sample([prompt], SamplingParams(16), _keys(1), renderer.stop_ids)
        await policy.close()
        return awake, asleep, done

    awake, asleep, done = asyncio.run(scene())
    assert asleep > awake
    assert apart([done.logprobs], [scored(reference, prompt, done.token_ids)])[1] < 1e-3
