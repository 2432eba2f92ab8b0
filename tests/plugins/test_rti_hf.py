"""The transformers policy against a plain forward pass, and the trainer against a loss by hand."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from attrs import evolve, frozen
from hf_cases import BATCH, SPLIT, VOCABULARY, optimiser, policy_of, trainer_of
from hypothesis import given, settings
from hypothesis import strategies as st

from rti import (
    Batch,
    NumericsError,
    RequestKey,
    RunError,
    SamplingParams,
    StaleVersionError,
)
from rti_grpo import Grpo

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from rti import model_folder  # noqa: E402
from rti.ops import token_scales  # noqa: E402
from rti_hf.decoder import Decoder  # noqa: E402
from rti_hf.kvstore import KVStore  # noqa: E402
from rti_hf.models import load_model  # noqa: E402
from rti_hf.trainer import HfTrainer  # noqa: E402
from rti_pocket.vocabulary import build_tokenizer  # noqa: E402
from rti_pocket.warmstart import new_model, save_base  # noqa: E402

NEVER = (VOCABULARY - 1,)
"""A stop token that a random model seldom says."""
OFTEN = tuple(range(0, VOCABULARY, 4))
"""So many stop tokens that rows end at different times, early and late."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random Llama whose probabilities are uneven enough to tell right from wrong."""
    path = tmp_path_factory.mktemp("model")
    model = new_model(1)
    with torch.no_grad():
        model.lm_head.weight.mul_(4)
    save_base(model, path)
    return path


@pytest.fixture(scope="module")
def plain(folder):
    """The same model by transformers alone."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def policy(folder):
    return policy_of(folder)


def some_ids(seed, low=3, high=20):
    r = random.Random(seed)
    return tuple(r.randrange(VOCABULARY) for _ in range(r.randint(low, high)))


def keys(count, **fields):
    return [RequestKey(seed=7, rollout=i, **fields) for i in range(count)]


def sample(policy, prompts, requests, stop=NEVER, **params):
    params = SamplingParams(**{"max_new_tokens": 12, **params})
    return asyncio.run(policy.sample(prompts, params, requests, stop))


def score(policy, prompts, completions, version=0):
    return asyncio.run(policy.score(prompts, completions, version))


def ids_of(completions):
    return [c.token_ids for c in completions]


def by_hand(plain, prompt, completion):
    """Logprobs of a completion by one plain forward pass, and the whole distributions."""
    with torch.inference_mode():
        logits = plain(torch.tensor([prompt + completion])).logits[0]
    logprobs = logits[len(prompt) - 1 : -1].log_softmax(-1)
    picked = logprobs.gather(1, torch.tensor(completion)[:, None])[:, 0]
    return picked.tolist(), logprobs


# --- sampling and scoring -------------------------------------------------------------------


def test_sampled_scored_and_plain_logprobs_agree(policy, plain):
    prompts = [some_ids(i) for i in range(8)]
    sampled = sample(policy, prompts, keys(8), OFTEN)
    assert len({len(c.token_ids) for c in sampled}) > 2
    scored = score(policy, prompts, ids_of(sampled))
    for prompt, completion, again in zip(prompts, sampled, scored, strict=True):
        expected, _ = by_hand(plain, prompt, completion.token_ids)
        assert completion.logprobs == pytest.approx(expected, abs=1e-5)
        assert again == pytest.approx(expected, abs=1e-5)


def conversation(policy, turns=4, rows=6, stop=OFTEN):
    """Turns in which every prompt extends the last prompt and response."""
    prompts, said = [some_ids(0)] * 3 + [some_ids(i) for i in range(1, rows - 2)], []
    for turn in range(turns):
        completions = sample(policy, prompts, keys(rows, turn=turn), stop)
        said.append(completions)
        prompts = [
            prompt + c.token_ids + some_ids(100 * turn + i, 1, 6)
            for i, (prompt, c) in enumerate(zip(prompts, completions, strict=True))
        ]
    return said


def test_kept_keys_and_values_change_no_token(folder):
    kept, fresh = policy_of(folder), policy_of(folder, cache_mb=0)
    one, other = conversation(kept), conversation(fresh)
    assert [ids_of(turn) for turn in one] == [ids_of(turn) for turn in other]
    for turn, same in zip(one, other, strict=True):
        for a, b in zip(turn, same, strict=True):
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)
            assert a.finish == b.finish
    assert kept.usage["reused_tokens"] > kept.usage["prefill_tokens"] / 2
    assert fresh.usage["reused_tokens"] == 0
    assert kept.usage["prefill_tokens"] < fresh.usage["prefill_tokens"]
    assert kept.usage["sampled_tokens"] == sum(len(c.token_ids) for turn in one for c in turn)


def test_scoring_over_kept_prefixes_changes_no_logprob(folder, plain):
    policy = policy_of(folder)
    for turn in range(3):
        prompts = [some_ids(0) + tuple(range(turn * 5))] * 4
        completions = ids_of(sample(policy, prompts, keys(4, turn=turn)))
        # Under the rollout prompt, and under a role prompt that begins with the whole rollout.
        role = [p + c + some_ids(9) for p, c in zip(prompts, completions, strict=True)]
        before = policy.usage["reused_tokens"]
        for heads in (prompts, role):
            scored = score(policy, heads, completions)
            for head, completion, found in zip(heads, completions, scored, strict=True):
                assert found == pytest.approx(by_hand(plain, head, completion)[0], abs=1e-5)
        assert policy.usage["reused_tokens"] > before


@pytest.mark.parametrize("options", [{}, {"max_rows": 3}, {"max_tokens": 70}, {"max_tokens": 1}])
def test_who_else_is_in_the_batch_does_not_matter(folder, options):
    prompts = [some_ids(i) for i in range(7)]
    together = sample(policy_of(folder, **options), prompts, keys(7), OFTEN)
    for prompt, key, completion in zip(prompts, keys(7), together, strict=True):
        [alone] = sample(policy_of(folder, cache_mb=0), [prompt], [key], OFTEN)
        assert alone.token_ids == completion.token_ids
        assert alone.logprobs == pytest.approx(completion.logprobs, abs=1e-5)


def test_requests_of_several_kinds_at_once(folder):
    policy = policy_of(folder)
    prompts = [some_ids(i) for i in range(4)]

    async def ask(i):
        if i % 2:
            return (await policy.score([prompts[i]], [(5, 6, 7)], 0))[0]
        params = SamplingParams(4 + i, temperature=float(i))
        return (await policy.sample([prompts[i]], params, [keys(4)[i]], NEVER))[0].token_ids

    async def all_at_once():
        return await policy.gather([ask(i) for i in range(4)])

    found = asyncio.run(all_at_once())
    apart = [asyncio.run(policy_ask) for policy_ask in (ask(i) for i in range(4))]
    for i in range(4):
        assert found[i] == (pytest.approx(apart[i], abs=1e-5) if i % 2 else apart[i])
    assert [len(found[0]), len(found[2])] == [4, 6]


def test_equal_keys_draw_equal_tokens_and_others_others(policy):
    prompt = some_ids(3)
    one, other = sample(policy, [prompt] * 2, [RequestKey(seed=1, task="a")] * 2)
    assert one == other
    base = RequestKey()
    changed = {
        "seed": 1,
        "step": 1,
        "task": "t",
        "rollout": 1,
        "turn": 1,
        "role": "x",
        "attempt": 1,
    }
    said = ids_of(
        sample(policy, [prompt] * 8, [base, *(base.child(**{k: v}) for k, v in changed.items())])
    )
    assert len(set(said)) == 8


def test_a_shared_prompt_goes_through_the_model_once(folder):
    policy = policy_of(folder, cache_mb=0)
    prompt = some_ids(5)
    together = sample(policy, [prompt] * 6 + [some_ids(6)], keys(7))
    assert policy.usage["prefill_tokens"] == len(prompt) + len(some_ids(6))
    assert len(set(ids_of(together))) == 7
    alone = [sample(policy, [prompt], [key])[0] for key in keys(6)]
    assert ids_of(alone) == ids_of(together[:6])


def test_rows_that_end_early_make_room_and_disturb_nobody(folder, plain):
    """Of 24 rows most end soon: the batch is compacted more than once."""
    policy = policy_of(folder)
    prompts = [some_ids(i % 5) for i in range(24)]
    said = sample(policy, prompts, keys(24), OFTEN, max_new_tokens=30)
    lengths = Counter(len(c.token_ids) for c in said)
    assert len(lengths) > 4
    for prompt, key, completion in zip(prompts, keys(24), said, strict=True):
        expected, _ = by_hand(plain, prompt, completion.token_ids)
        assert completion.logprobs == pytest.approx(expected, abs=1e-5)
        assert sample(policy, [prompt], [key], OFTEN, max_new_tokens=30)[0].token_ids == (
            completion.token_ids
        )
    # What was kept of compacted rows is what they said.
    longer = [p + c.token_ids + (1, 2) for p, c in zip(prompts, said, strict=True)]
    before = policy.usage["reused_tokens"]
    for head, found in zip(longer, score(policy, longer, [(3, 4)] * 24), strict=True):
        assert found == pytest.approx(by_hand(plain, head, (3, 4))[0], abs=1e-5)
    assert policy.usage["reused_tokens"] - before >= sum(map(len, longer)) - 24 * 3


def test_a_completion_ends_at_a_stop_token_or_at_its_limit(policy):
    prompts = [some_ids(i) for i in range(10)]
    said = sample(policy, prompts, keys(10), OFTEN, max_new_tokens=5)
    assert {c.finish for c in said} == {"stop", "length"}
    for completion in said:
        *before, last = completion.token_ids
        assert not set(before) & set(OFTEN)
        assert completion.finish == ("stop" if last in OFTEN else "length")
        assert completion.finish == "stop" or len(completion.token_ids) == 5
        assert len(completion.logprobs) == len(completion.token_ids)
        assert completion.policy_version == 0


# --- the distribution -----------------------------------------------------------------------


def test_tokens_come_as_often_as_they_are_likely(folder, plain):
    prompt = some_ids(11)
    policy = policy_of(folder, max_rows=1000)
    said = sample(policy, [prompt] * 4000, keys(4000), max_new_tokens=1)
    counts = Counter(c.token_ids[0] for c in said)
    _, logprobs = by_hand(plain, prompt, (0,))
    likely = logprobs[0].exp()
    for token in likely.argsort(descending=True)[:15].tolist():
        p = likely[token].item()
        assert abs(counts[token] / 4000 - p) < 4.5 * math.sqrt(p * (1 - p) / 4000)


def test_top_p_keeps_to_the_nucleus_and_reports_logprobs_at_temperature_1(policy, plain):
    prompts = [some_ids(i) for i in range(12)]
    said = sample(policy, prompts, keys(12), top_p=0.3, max_new_tokens=6)
    outside = 0
    for prompt, completion in zip(prompts, said, strict=True):
        expected, logprobs = by_hand(plain, prompt, completion.token_ids)
        assert completion.logprobs == pytest.approx(expected, abs=1e-5)
        for token, row in zip(completion.token_ids, logprobs.exp(), strict=True):
            before = row[row > row[token]].sum().item()
            assert before < 0.3 + 1e-5
    free = sample(policy, prompts, keys(12), max_new_tokens=6)
    for prompt, completion in zip(prompts, free, strict=True):
        _, logprobs = by_hand(plain, prompt, completion.token_ids)
        for token, row in zip(completion.token_ids, logprobs.exp(), strict=True):
            outside += row[row > row[token]].sum().item() > 0.3
    assert outside > 10  # the nucleus is a real restriction here


def test_temperature_0_takes_the_likeliest_token(policy, plain):
    prompts = [some_ids(i) for i in range(5)]
    said = sample(policy, prompts, keys(5), temperature=0.0)
    assert ids_of(sample(policy, prompts, keys(5, step=9), temperature=0.0)) == ids_of(said)
    for prompt, completion in zip(prompts, said, strict=True):
        expected, logprobs = by_hand(plain, prompt, completion.token_ids)
        assert list(completion.token_ids) == logprobs.argmax(-1).tolist()
        assert completion.logprobs == pytest.approx(expected, abs=1e-5)


def test_a_low_temperature_draws_likelier_tokens(policy):
    prompts = [some_ids(i) for i in range(16)]
    cold = sample(policy, prompts, keys(16), temperature=0.3)
    warm = sample(policy, prompts, keys(16))

    def mean(completions):
        return np.mean([x for c in completions for x in c.logprobs])

    assert mean(cold) > mean(warm) + 0.5


# --- versions -------------------------------------------------------------------------------


def test_load_takes_new_weights_and_forgets_the_old_ones(folder, tmp_path):
    policy, prompt = policy_of(folder), some_ids(2)
    [before] = sample(policy, [prompt], keys(1))
    other = new_model(2)
    weights = {n: p.detach().clone() for n, p in other.named_parameters()}
    asyncio.run(policy.load(weights, 5))
    assert policy.version == 5
    reused = policy.usage["reused_tokens"]
    [scored] = score(policy, [prompt], [before.token_ids], 5)
    assert policy.usage["reused_tokens"] == reused
    assert scored == pytest.approx(by_hand(other.eval(), prompt, before.token_ids)[0], abs=1e-5)
    assert scored != pytest.approx(before.logprobs, abs=1e-3)
    [after] = sample(policy, [prompt], keys(1))
    assert after.policy_version == 5
    for tensor in weights.values():  # taken, not borrowed
        tensor.zero_()
    assert score(policy, [prompt], [before.token_ids], 5)[0] == pytest.approx(scored, abs=1e-5)


@pytest.mark.parametrize("version", [-1, 1, 7])
def test_scoring_under_another_version_is_an_error(policy, version):
    with pytest.raises(
        StaleVersionError, match=f"version {version}, but the weights are version 0"
    ):
        score(policy, [some_ids(1)], [(1, 2)], version)


def test_half_precision_runs(folder):
    policy = policy_of(folder, dtype="bfloat16")
    prompts = [some_ids(i) for i in range(4)]
    said = sample(policy, prompts, keys(4))
    for completion, scored in zip(said, score(policy, prompts, ids_of(said)), strict=True):
        assert completion.logprobs == pytest.approx(scored, abs=0.3)


def test_a_tied_head_is_loaded_with_its_embedding(tmp_path):
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model, other = (transformers.LlamaForCausalLM(config) for _ in range(2))
    save_base(model, tmp_path)
    policy, prompt = policy_of(tmp_path), some_ids(2)
    asyncio.run(policy.load(dict(other.named_parameters()), 1))
    [found] = score(policy, [prompt], [(1, 2, 3)], 1)
    assert found == pytest.approx(by_hand(other.eval(), prompt, (1, 2, 3))[0], abs=1e-5)


def test_a_model_it_cannot_keep_keys_of_is_refused(folder):
    model = load_model(str(folder), "float32", "cpu", 1)
    model.config.layer_types = ["full_attention", "sliding_attention", "full_attention"]
    with pytest.raises(RunError, match="sliding_attention"):
        Decoder(model, KVStore(0), 1, 1)


# --- the store ------------------------------------------------------------------------------


def block(length, fill=0.0):
    return torch.full((1, 2, 1, length, 4), fill)


BYTES = 2 * 4 * 4
"""Of one token in the blocks above."""


def test_the_store_finds_the_longest_known_prefix():
    store = KVStore(10_000)
    store.put((1, 2, 3, 4), (2,), block(4, 1.0))
    store.put((1, 2, 9), (), block(3, 2.0))
    for ids, at_most, length, fill in [
        ((1, 2, 3, 4, 5), 4, 4, 1.0),
        ((1, 2, 3, 4, 5), 3, 2, 1.0),  # only marked lengths are looked up
        ((1, 2, 9, 9), 3, 3, 2.0),
        ((1, 2, 7), 2, 2, 1.0),
        ((1, 7), 2, 0, None),
        ((2, 3), 2, 0, None),
    ]:
        found, kept = store.longest(ids, at_most)
        assert found == length
        assert kept is None if fill is None else kept.shape[3] == length and (kept == fill).all()
    store.clear()
    assert store.longest((1, 2, 3, 4), 4) == (0, None)


def test_the_store_keeps_within_its_limit_and_drops_the_oldest():
    store = KVStore(8 * BYTES)
    store.put((1, 1, 1), (), block(3))
    store.put((2, 2, 2), (), block(3))
    assert store.longest((1, 1, 1), 3)[0] == 3  # used: now the other one is the oldest
    store.put((3, 3, 3), (), block(3))
    assert store.longest((1, 1, 1), 3)[0] == 3
    assert store.longest((2, 2, 2), 3)[0] == 0
    assert store.longest((3, 3, 3), 3)[0] == 3
    store.put(tuple(range(9)), (), block(9))  # larger than all there is
    assert store.longest(tuple(range(9)), 9)[0] == 0
    assert store.longest((3, 3, 3), 3)[0] == 3


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=6), st.booleans()), max_size=25
    )
)
def test_the_store_never_gives_the_keys_of_other_tokens(steps):
    store = KVStore(12 * BYTES)
    for ids, puts in steps:
        ids = tuple(ids)
        if puts:
            values = torch.tensor([hash(ids[: i + 1]) % 1000 for i in range(len(ids))]).float()
            store.put(
                ids,
                (max(1, len(ids) - 1),),
                values[None, None, None, :, None].expand(1, 2, 1, -1, 4),
            )
            continue
        length, kept = store.longest(ids, len(ids))
        if length:
            expected = torch.tensor([hash(ids[: i + 1]) % 1000 for i in range(length)]).float()
            assert torch.equal(kept[0, 0, 0, :, 0], expected)


# --- the trainer ----------------------------------------------------------------------------


def gradients(trainer, tmp_path, batch=BATCH, name="g"):
    """Of the first update: AdamW's first mean is (1 − β1) times the gradient."""
    metrics = trainer.step(batch)
    tensors = optimiser(trainer, tmp_path / name)
    prefix = "state/exp_avg/"
    return metrics, {
        key.removeprefix(prefix): value / (1 - trainer.beta1)
        for key, value in tensors.items()
        if key.startswith(prefix)
    }


def assert_close(found, expected):
    """Gradients that differ by no more than rounding."""
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        rounding = 1e-5 * gradient.abs().max().item()
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=rounding)


def loss_by_hand(model, batch, objective):
    """Sample by sample, token by token, in plain words."""
    scales = token_scales(
        [sum(s.loss_mask) for s in batch.samples],
        [s.rollout for s in batch.samples],
        objective.aggregate,
        objective.constant_length,
    ).tolist()
    total = torch.zeros(())
    for sample_, scale in zip(batch.samples, scales, strict=True):
        logits = model(torch.tensor([sample_.token_ids])).logits[0]
        for t in range(1, len(sample_.token_ids)):
            if not sample_.loss_mask[t]:
                continue
            logprob = logits[t - 1].log_softmax(-1)[sample_.token_ids[t]]
            ratio = (logprob - sample_.rollout_logprobs[t]).exp()
            advantage = sample_.advantages[t]
            low, high = 1 - objective.clip_low, 1 + objective.clip_high
            clipped = ratio.clamp(low, high)
            total = total - torch.minimum(ratio * advantage, clipped * advantage) * scale
    return total


OBJECTIVES = [
    Grpo(),
    Grpo(aggregate="sequence", clip_low=0.1, clip_high=0.5),
    Grpo(aggregate="constant", constant_length=30),
]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("batch", [BATCH, SPLIT])
def test_the_gradient_is_that_of_a_loss_written_by_hand(folder, tmp_path, objective, batch):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    loss = loss_by_hand(model, batch, objective)
    loss.backward()
    metrics, found = gradients(trainer_of(folder, objective), tmp_path, batch)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-4)
    norm = math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters()))
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert_close(found, {name: p.grad for name, p in model.named_parameters()})


@pytest.mark.parametrize(
    "options",
    [{"micro_batch_tokens": 1}, {"micro_batch_tokens": 60}, {"gradient_checkpointing": True}],
)
def test_how_the_batch_is_cut_does_not_matter(folder, tmp_path, options):
    whole_trainer, cut_trainer = trainer_of(folder), trainer_of(folder, **options)
    whole, expected = gradients(whole_trainer, tmp_path, name="whole")
    cut, found = gradients(cut_trainer, tmp_path, name="cut")
    assert cut["loss"] == pytest.approx(whole["loss"], rel=1e-5)
    assert_close(found, expected)


def test_what_is_masked_has_no_effect(folder, tmp_path):
    """Not the numbers that stand there, nor what comes after the last trained token."""

    def spoilt(sample_):
        def put(values, wrong):
            return tuple(v if m else wrong for v, m in zip(values, sample_.loss_mask, strict=True))

        return evolve(
            sample_,
            token_ids=(*sample_.token_ids, 5, 6, 7),
            loss_mask=(*sample_.loss_mask, False, False, False),
            rollout_logprobs=(*put(sample_.rollout_logprobs, -3.0), 0.0, 0.0, 0.0),
            advantages=(*put(sample_.advantages, 1e6), 1e6, 1e6, 1e6),
            weights=(*put(sample_.weights, 9.0), 9.0, 9.0, 9.0),
        )

    clean, expected = gradients(trainer_of(folder), tmp_path, name="clean")
    batch = Batch(tuple(spoilt(s) for s in BATCH.samples))
    odd, found = gradients(trainer_of(folder), tmp_path, batch, name="odd")
    assert odd["loss"] == pytest.approx(clean["loss"], rel=1e-5)
    assert_close(found, expected)


def test_a_sample_without_a_trained_token_is_harmless(folder, tmp_path):
    silent = evolve(
        BATCH.samples[0], loss_mask=(False,) * len(BATCH.samples[0].loss_mask), rollout=9
    )
    _, expected = gradients(trainer_of(folder), tmp_path, name="without")
    batch = Batch((silent, *BATCH.samples))
    _, found = gradients(trainer_of(folder), tmp_path, batch, name="with")
    assert_close(found, expected)


def test_on_the_policys_own_logprobs_the_ratio_is_1(folder):
    policy, trainer = policy_of(folder), trainer_of(folder)
    samples = []
    for s in BATCH.samples:
        scored = score(policy, [s.token_ids[:1]], [s.token_ids[1:]])[0]
        own = tuple(x if m else 0.0 for x, m in zip((0.0, *scored), s.loss_mask, strict=True))
        samples.append(evolve(s, rollout_logprobs=own))
    metrics = trainer.step(Batch(tuple(samples)))
    assert metrics["log_ratio_max"] < 1e-4
    trained = [a for s in samples for a, m in zip(s.advantages, s.loss_mask, strict=True) if m]
    assert metrics["loss"] == pytest.approx(-np.mean(trained), abs=1e-4)


def test_epochs_are_updates_on_one_batch(folder):
    twice, once = trainer_of(folder, epochs=2), trainer_of(folder)
    twice.step(BATCH)
    once.step(BATCH)
    once.step(BATCH)
    for name, weight in once.weights().items():
        assert torch.equal(weight, twice.weights()[name])


def test_the_step_size_warms_up(folder):
    trainer = trainer_of(folder, learning_rate=1e-3, warmup_steps=4)
    rates = [trainer.step(BATCH)["learning_rate"] for _ in range(5)]
    assert rates == pytest.approx([0.00025, 0.0005, 0.00075, 0.001, 0.001])


def test_the_gradient_is_clipped(folder, tmp_path):
    metrics, found = gradients(trainer_of(folder, max_grad_norm=0.01), tmp_path)
    assert metrics["grad_norm"] > 0.01  # reported as it was
    norm = math.sqrt(sum(g.double().square().sum().item() for g in found.values()))
    assert norm == pytest.approx(0.01, rel=1e-3)


# --- when things go wrong -------------------------------------------------------------------


@frozen
class Breaks:
    """GRPO whose loss is NaN, or raises, in micro-batch number `at`."""

    at: int
    how: str
    calls: list = []  # noqa: RUF008 - emptied by the test
    needs = ()
    aggregate = "token"
    constant_length = 0

    def advantages(self, group):
        raise AssertionError

    def token_loss(self, logprobs, rollout_logprobs, advantages):
        self.calls.append(1)
        loss = Grpo().token_loss(logprobs, rollout_logprobs, advantages)
        if len(self.calls) == self.at:
            if self.how == "raises":
                raise NumericsError("logprobs[3] = nan: must be finite")
            return loss * float(self.how)
        return loss


@pytest.mark.parametrize("how", ["nan", "inf", "raises"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_bad_gradient_leaves_the_weights_and_no_trace(folder, how, dtype):
    objective = Breaks(2, how)
    objective.calls.clear()
    options = {"micro_batch_tokens": 60, "dtype": dtype}
    trainer, calm = trainer_of(folder, objective, **options), trainer_of(folder, **options)
    before = {n: w.clone() for n, w in trainer.weights().items()}
    with pytest.raises(NumericsError):
        trainer.step(BATCH)
    assert len(objective.calls) >= 2
    assert all(torch.equal(w, before[n]) for n, w in trainer.weights().items())
    # The next update is as if nothing had been.
    assert trainer.step(BATCH)["loss"] == calm.step(BATCH)["loss"]
    assert all(torch.equal(w, calm.weights()[n]) for n, w in trainer.weights().items())


def test_nothing_to_learn_from_is_an_error(folder):
    with pytest.raises(RunError, match="empty batch"):
        trainer_of(folder).step(Batch(()))
    first = evolve(BATCH.samples[0], loss_mask=(True,) * len(BATCH.samples[0].token_ids))
    with pytest.raises(NumericsError, match="first token"):
        trainer_of(folder).step(Batch((first,)))


def test_it_supports_what_it_knows_all_needs_of(folder):
    trainer = HfTrainer()
    assert trainer.supports(Grpo())
    assert not trainer.supports(SimpleNamespace(needs=("teacher", "a-map")))


# --- saving ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saved_and_restored_it_goes_on_bit_for_bit(folder, tmp_path, dtype):
    straight = trainer_of(folder, dtype=dtype, warmup_steps=5)
    straight.step(BATCH)
    straight.step(SPLIT)
    straight.save(tmp_path)
    resumed = trainer_of(folder, dtype=dtype, warmup_steps=5)
    resumed.restore(tmp_path)
    for _ in range(2):
        one, other = straight.step(BATCH), resumed.step(BATCH)
        del one["seconds_update"], other["seconds_update"]
        assert one == other
    for name, weight in straight.weights().items():
        assert torch.equal(weight, resumed.weights()[name])
    left, right = (optimiser(t, tmp_path / n) for t, n in ((straight, "a"), (resumed, "b")))
    assert left.keys() == right.keys()
    assert all(torch.equal(left[k], right[k]) for k in left)


def test_restoring_undoes_what_came_after(folder, tmp_path):
    trainer, fresh = trainer_of(folder), trainer_of(folder)
    trainer.save(tmp_path)  # before any update: there is no optimiser state yet
    trainer.step(SPLIT)
    trainer.restore(tmp_path)
    assert trainer.step(BATCH)["loss"] == fresh.step(BATCH)["loss"]
    assert all(torch.equal(w, fresh.weights()[n]) for n, w in trainer.weights().items())


def test_what_is_saved_is_a_plain_folder_without_pickles(folder, tmp_path):
    trainer = trainer_of(folder)
    trainer.step(BATCH)
    trainer.save(tmp_path)
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert {p.suffix for p in files} <= {".safetensors", ".json", ".jinja", ".txt"}
    assert {"optimiser.safetensors", "model.safetensors", "config.json", "tokenizer.json"} <= {
        p.name for p in files
    }
    again = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", dtype=torch.float32
    )
    for name, weight in again.named_parameters():
        assert torch.equal(weight, trainer.weights()[name])
    # And a policy can start from it.
    assert policy_of(tmp_path / "model").version == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer.encode("ask user <e>") == build_tokenizer().encode("ask user <e>")


def test_half_precision_learns_through_float32_masters(folder, tmp_path):
    """A step size far below what bfloat16 can hold adds up all the same."""
    trainer = trainer_of(folder, dtype="bfloat16", learning_rate=2e-6)
    before = {n: w.clone() for n, w in trainer.weights().items()}
    first = optimiser(trainer, tmp_path / "0")
    for _ in range(3):
        trainer.step(BATCH)
    last = optimiser(trainer, tmp_path / "3")
    name = "model.layers.0.mlp.up_proj.weight"
    assert trainer.weights()[name].dtype == torch.bfloat16
    assert first[f"master/{name}"].dtype == torch.float32
    moved = (last[f"master/{name}"] - first[f"master/{name}"]).abs()
    assert 3e-6 < moved.max() < 1e-5
    assert (moved > 0).float().mean() > 0.9
    assert torch.equal(trainer.weights()[name], last[f"master/{name}"].bfloat16())
    unchanged = (trainer.weights()[name] == before[name]).float().mean()
    assert unchanged > 0.5  # most steps are too small to show in bfloat16 yet


def llama(**changes):
    sizes = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
    }  # fmt: skip
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**sizes, **changes}))


@pytest.mark.parametrize(
    "change", [{"num_hidden_layers": 2}, {"hidden_size": 64}, {"intermediate_size": 16}]
)
def test_restoring_another_models_file_is_an_error(tmp_path, change):
    for name, model in (("one", llama()), ("other", llama(**change))):
        save_base(model, tmp_path / name)
    other = trainer_of(tmp_path / "other")
    (tmp_path / "saved").mkdir()
    other.save(tmp_path / "saved")
    trainer = trainer_of(tmp_path / "one")
    before = {n: w.clone() for n, w in trainer.weights().items()}
    with pytest.raises(RunError, match="was written for another model"):
        trainer.restore(tmp_path / "saved")
    assert all(torch.equal(w, before[n]) for n, w in trainer.weights().items())


@pytest.mark.parametrize("content", [None, b"", b"\x80\x04pickled"])
def test_a_state_that_cannot_be_read_is_an_error(folder, tmp_path, content):
    if content is not None:
        (tmp_path / "optimiser.safetensors").write_bytes(content)
    with pytest.raises(RunError, match="cannot be read"):
        trainer_of(folder).restore(tmp_path)


# --- folders --------------------------------------------------------------------------------


def test_where_a_model_may_lie(folder, tmp_path):
    from rti import ConfigError

    assert model_folder(str(folder)) == folder
    assert (model_folder("rti_pocket:base") / "model.safetensors").is_file()
    for path, message in [
        ("", "path is empty"),
        (str(tmp_path), "no config.json"),
        ("rti_nowhere:base", "no package 'rti_nowhere'"),
        ("org/model", "no config.json"),
    ]:
        with pytest.raises(ConfigError, match=message):
            model_folder(path)
