"""The hf policy and trainer in bfloat16 on a GPU: the same promises as on a CPU."""

from __future__ import annotations

import asyncio

import pytest
from hf_cases import BATCH, SPLIT, optimiser, policy_of, tiny_folder, trainer_of

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

AT = {"device": "cuda", "dtype": "bfloat16"}
WAYS = [
    {},
    {"gradient_checkpointing": True},
    {"lora_rank": 8},
    {"lora_rank": 8, "gradient_checkpointing": True},
]


@pytest.fixture(scope="module", params=["llama", "qwen3-tied"])
def folder(request, tmp_path_factory):
    return tiny_folder(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("way", WAYS)
def test_it_learns_and_the_policy_follows(folder, way):
    if "lora_rank" in way:
        pytest.importorskip("peft")
    trainer, policy = trainer_of(folder, learning_rate=1e-2, **way, **AT), policy_of(folder, **AT)
    prompts, completions = [(5, 6, 7), (8, 9)], [(1, 2, 3, 4), (20, 21)]
    before = trainer.score(prompts, completions)
    for batch in (BATCH, SPLIT, BATCH):
        assert trainer.step(batch)["grad_norm"] > 0
    asyncio.run(policy.load(trainer.weights(), 3))
    ours = trainer.score(prompts, completions)
    theirs = asyncio.run(policy.score(prompts, completions, 3))
    for a, b, old in zip(ours, theirs, before, strict=True):
        assert a == pytest.approx(b, abs=0.3)  # bfloat16
        assert a != pytest.approx(old, abs=1e-3)


@pytest.mark.parametrize("way", WAYS)
def test_at_the_initial_model_the_kl_penalty_is_0(folder, way):
    if "lora_rank" in way:
        pytest.importorskip("peft")
    trainer = trainer_of(folder, kl_coefficient=1.0, **way, **AT)
    assert trainer.step(BATCH)["kl"] == 0.0
    assert trainer.step(BATCH)["kl"] > 0.0


@pytest.mark.parametrize("way", WAYS)
def test_what_is_read_back_is_what_was_saved(folder, way, tmp_path):
    if "lora_rank" in way:
        pytest.importorskip("peft")
    trainer, other = trainer_of(folder, **way, **AT), trainer_of(folder, **way, **AT)
    trainer.step(BATCH)
    saved = optimiser(trainer, tmp_path / "a")
    other.restore(tmp_path / "a")
    again = optimiser(other, tmp_path / "b")
    assert saved.keys() == again.keys()
    assert all(torch.equal(saved[name], again[name]) for name in saved)
