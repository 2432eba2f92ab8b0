"""LoRA: what learns, what the merged weights are, and what is written and read back."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from hf_cases import BATCH, FAMILIES, SPLIT, optimiser, policy_of, tiny, tiny_folder, trainer_of

from rti import ConfigError, PluginError, RunError, model_folder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

LORA = {"lora_rank": 4, "lora_alpha": 8.0, "learning_rate": 3e-2}
PROMPTS = [(5, 6, 7), (8, 9, 10, 11, 12), (13,)]
COMPLETIONS = [(1, 2, 3, 4), (20, 21), (30, 31, 32, 33, 34, 35)]


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    return tiny_folder(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return tiny_folder("llama", tmp_path_factory.mktemp("one"))


def base_of(folder, dtype=torch.float32):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return {n: p.detach() for n, p in model.named_parameters()}


def trained(folder, steps=3, **options):
    trainer = trainer_of(folder, **{**LORA, **options})
    for _ in range(steps):
        trainer.step(BATCH)
    return trainer


def adapted(name):
    return "_proj.weight" in name


def same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def farthest(one, other):
    return max(
        abs(a - b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)
    )


# --- what learns ----------------------------------------------------------------------------


def test_before_the_first_step_the_weights_are_the_bases(folder):
    same(dict(trainer_of(folder, **LORA).weights()), base_of(folder))


def test_a_step_changes_the_adapters_and_nothing_else(folder, tmp_path):
    trainer, base = trainer_of(folder, **LORA), base_of(folder)
    before = optimiser(trainer, tmp_path / "0")
    trainer.step(BATCH)
    after = optimiser(trainer, tmp_path / "1")
    masters = [name for name in after if name.startswith("master/")]
    assert len(masters) == 2 * 2 * 7  # A and B of seven projections in each of two layers
    assert all(".lora_" in name for name in masters)
    assert all(after[name].dtype == torch.float32 for name in masters)
    changed = {name for name in masters if not torch.equal(before[name], after[name])}
    assert changed >= {name for name in masters if ".lora_B." in name}
    weights = trainer.weights()
    assert weights.keys() == base.keys()
    for name, weight in weights.items():
        assert torch.equal(weight, base[name]) != adapted(name), name


def test_the_gradient_is_that_of_the_merged_model(llama, tmp_path):
    """∂L/∂A = scale · Bᵀ ∂L/∂W and ∂L/∂B = scale · ∂L/∂W Aᵀ, with ∂L/∂W of a plain model."""
    trainer = trained(llama, 2, beta1=0.0)  # AdamW's mean is then the last gradient
    weights = {n: w.clone() for n, w in trainer.weights().items()}
    before = optimiser(trainer, tmp_path / "before")
    trainer.step(SPLIT)
    after = optimiser(trainer, tmp_path / "after")
    tiny_folder("llama", tmp_path / "plain")
    full = trainer_of(tmp_path / "plain", beta1=0.0)
    with torch.no_grad():
        for name, live in full.weights().items():
            live.copy_(weights[name])
    full.step(SPLIT)
    whole = optimiser(full, tmp_path / "full")
    scale = 8.0 / 4
    for layer in ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"):
        a = before[f"master/{layer}.lora_A.default.weight"]
        b = before[f"master/{layer}.lora_B.default.weight"]
        gradient = whole[f"state/exp_avg/{layer}.weight"]
        for found, expected in (
            (after[f"state/exp_avg/{layer}.lora_A.default.weight"], scale * b.T @ gradient),
            (after[f"state/exp_avg/{layer}.lora_B.default.weight"], scale * gradient @ a.T),
        ):
            rounding = 1e-4 * expected.abs().max().item()
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=rounding)


def test_checkpointing_activations_changes_no_gradient(folder):
    plain, saving = trained(folder, 1), trained(folder, 1, gradient_checkpointing=True)
    for name, weight in plain.weights().items():
        torch.testing.assert_close(saving.weights()[name], weight, rtol=1e-4, atol=1e-5)


def test_adapters_are_drawn_by_the_runs_seed_alone(llama, tmp_path):
    torch.manual_seed(5)
    first = torch.rand(3)
    torch.manual_seed(5)
    one = optimiser(trainer_of(llama, seed=1, **LORA), tmp_path / "1")
    assert torch.equal(torch.rand(3), first)  # nobody else's randomness is used up
    again = optimiser(trainer_of(llama, seed=1, **LORA), tmp_path / "2")
    other = optimiser(trainer_of(llama, seed=2, **LORA), tmp_path / "3")
    same(one, again)
    name = "master/model.layers.0.mlp.up_proj.lora_A.default.weight"
    assert not torch.equal(one[name], other[name])


def test_dropout_of_the_model_is_off_while_checkpointing(tmp_path):
    model = tiny("qwen3")
    model.config.attention_dropout = 0.5
    from rti_pocket.warmstart import save_base

    save_base(model, tmp_path)
    trainer = trainer_of(tmp_path, gradient_checkpointing=True)
    assert {
        module.attention_dropout
        for module in trainer._model.modules()
        if hasattr(module, "attention_dropout")
    } == {0.0}


# --- merged weights -------------------------------------------------------------------------


def test_merged_weights_speak_as_the_live_model_does(folder):
    trainer, policy = trained(folder), policy_of(folder)
    live = trainer.score(PROMPTS, COMPLETIONS)
    before = asyncio.run(policy.score(PROMPTS, COMPLETIONS, 0))
    assert farthest(live, before) > 1e-2  # it has learnt something to merge
    asyncio.run(policy.load(trainer.weights(), 1))
    assert farthest(live, asyncio.run(policy.score(PROMPTS, COMPLETIONS, 1))) < 1e-5


def test_asking_for_weights_leaves_the_run_as_it_is(llama):
    asked, left = trained(llama, 1), trained(llama, 1)
    same(dict(asked.weights()), dict(asked.weights()))
    assert asked.step(BATCH)["loss"] == left.step(BATCH)["loss"]
    same(dict(asked.weights()), dict(left.weights()))


def test_only_adapted_layers_are_copied(llama):
    trainer = trained(llama, 1)
    live = {p.data_ptr() for p in trainer._model.parameters()}
    for name, weight in trainer.weights().items():
        assert (weight.data_ptr() in live) != adapted(name), name
    full = trainer_of(llama)
    live = {p.data_ptr() for p in full._model.parameters()}
    assert all(weight.data_ptr() in live for weight in full.weights().values())


def test_in_half_precision_the_live_model_is_the_rounded_one_that_the_policy_gets(folder):
    """Not W x + B A x, which the policy could never hold: π_θ would not be π_roll."""
    trainer, base = trained(folder, dtype="bfloat16"), base_of(folder, torch.bfloat16)
    weights = trainer.weights()
    for name, weight in weights.items():
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, base[name]) != adapted(name)
    full = trainer_of(folder, dtype="bfloat16")
    with torch.no_grad():
        for name, live in full.weights().items():
            live.copy_(weights[name])
    assert full.score(PROMPTS, COMPLETIONS) == trainer.score(PROMPTS, COMPLETIONS)


# --- files ----------------------------------------------------------------------------------


def test_what_is_saved_is_a_merged_model_and_an_adapter_apart(folder, tmp_path):
    trainer = trained(folder)
    trainer.save(tmp_path)
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert {
        "model/config.json", "model/model.safetensors", "model/tokenizer.json",
        "adapter/adapter_config.json", "adapter/adapter_model.safetensors",
        "optimiser.safetensors",
    } <= files  # fmt: skip
    assert {name.rpartition(".")[2] for name in files} <= {"safetensors", "json", "jinja", "txt"}
    merged, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    same({n: p.detach() for n, p in merged.named_parameters()}, dict(trainer.weights()))
    live = trainer.score(PROMPTS, COMPLETIONS)
    found = asyncio.run(policy_of(tmp_path / "model").score(PROMPTS, COMPLETIONS, 0))
    assert farthest(found, live) < 1e-5
    # peft itself puts the adapter on the base, and merges it to the very same weights.
    base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").merge_and_unload()
    same({n: p.detach() for n, p in theirs.named_parameters()}, dict(trainer.weights()))
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(folder)
    assert config["lora_dropout"] == 0.0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("options", [{}, {"kl_coefficient": 0.1}, {"gradient_checkpointing": True}])
def test_resumed_it_goes_on_bit_for_bit(llama, tmp_path, dtype, options):
    straight = trained(llama, 2, dtype=dtype, **options)
    straight.save(tmp_path)
    resumed = trainer_of(llama, dtype=dtype, **{**LORA, **options})
    resumed.step(SPLIT)  # undone by what is read back
    resumed.restore(tmp_path)
    for batch in (SPLIT, BATCH):
        one, other = dict(straight.step(batch)), dict(resumed.step(batch))
        del one["seconds_update"], other["seconds_update"]
        assert one == other
    same(dict(straight.weights()), dict(resumed.weights()))
    same(optimiser(straight, tmp_path / "a"), optimiser(resumed, tmp_path / "b"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lora_rank": 2}, "another model or another"),
        ({"lora_rank": 0}, "another model or another"),
        ({"lora_targets": ("q_proj",)}, "another model or another"),
        ({"lora_alpha": 16.0}, "lora_alpha = 8; it is 16"),
    ],
)
def test_restoring_other_adapters_is_an_error(llama, tmp_path, options, message):
    trained(llama, 1).save(tmp_path)
    other = trainer_of(llama, **{**LORA, **options})
    before = {n: w.clone() for n, w in other.weights().items()}
    with pytest.raises(RunError, match=message):
        other.restore(tmp_path)
    same(before, dict(other.weights()))


def test_restoring_a_full_run_into_adapters_is_an_error(llama, tmp_path):
    trainer_of(llama).save(tmp_path)
    with pytest.raises(RunError, match="another model or another"):
        trainer_of(llama, **LORA).restore(tmp_path)


def test_restoring_onto_another_base_is_an_error(llama, tmp_path):
    """Names and shapes fit, the numbers below the adapters do not."""
    trained(llama, 1).save(tmp_path)
    other = trainer_of(tiny_folder("llama", tmp_path / "other", seed=9), **LORA)
    with pytest.raises(RunError, match=r"another model than \[model\] path holds now"):
        other.restore(tmp_path)


# --- targets --------------------------------------------------------------------------------


def test_adapters_go_where_they_are_asked_for(llama):
    base = base_of(llama)
    targets = ("q_proj", "lm_head", "layers.1.mlp.up_proj")
    trainer, policy = trained(llama, lora_targets=targets), policy_of(llama)
    changed = {n for n, w in trainer.weights().items() if not torch.equal(w, base[n])}
    assert changed == {
        "lm_head.weight", "model.layers.1.mlp.up_proj.weight",
        "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight",
    }  # fmt: skip
    asyncio.run(policy.load(trainer.weights(), 1))
    found = asyncio.run(policy.score(PROMPTS, COMPLETIONS, 1))
    assert farthest(trainer.score(PROMPTS, COMPLETIONS), found) < 1e-5


def test_a_target_that_is_not_there_is_told_with_what_is(llama):
    with pytest.raises(
        ConfigError, match=r"no linear layer 'q_projj'. Did you mean 'q_proj'"
    ) as error:
        trainer_of(llama, lora_rank=4, lora_targets=("v_proj", "q_projj"))
    assert "down_proj" in str(error.value)
    with pytest.raises(ConfigError, match="no linear layer 'all-linear'"):
        trainer_of(llama, lora_rank=4, lora_targets=("all-linear", "q_proj"))


def test_embeddings_cannot_be_adapted(llama, tmp_path):
    with pytest.raises(ConfigError, match="no linear layer 'embed_tokens'"):
        trainer_of(llama, lora_rank=4, lora_targets=("embed_tokens",))
    folder = tiny_folder("qwen3-tied", tmp_path)
    with pytest.raises(ConfigError, match="'lm_head' shares its weight with the embedding"):
        trainer_of(folder, lora_rank=4, lora_targets=("lm_head",))


def test_without_peft_the_pip_line_is_told(llama, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(PluginError, match=r"pip install 'rti-rl\[lora\]'"):
        trainer_of(llama, lora_rank=4)
    trainer_of(llama)  # which needs none


# --- in a run -------------------------------------------------------------------------------


def test_a_run_with_adapters_is_resumed_evaluated_and_exported(
    pocket, pocket_toml, tmp_path, capsys
):
    from rti.cli import main
    from rti.engine import train

    options = (
        "trainer.lora_rank=4", "trainer.kl_coefficient=0.05", "trainer.schedule=linear",
        "trainer.schedule_steps=4", "trainer.learning_rate=1e-2", "checkpoint.every=1",
        "trigger.use=never",
    )  # fmt: skip

    def run(name, steps, resume=False):
        made = pocket(f"run.out={tmp_path / name}", f"run.steps={steps}", *options)
        asyncio.run(train(made, resume))
        return {n: w.clone() for n, w in made.trainer.weights().items()}

    straight = run("straight", 2)
    run("broken", 1)
    resumed = run("broken", 2, resume=True)
    same(straight, resumed)
    base = base_of(model_folder("rti_pocket:base"))
    assert {n for n in base if not torch.equal(base[n], resumed[n])} == {
        n for n in base if adapted(n)
    }
    words = [w for o in options for w in ("--set", o)]
    small = ["--set", "environment.test_tasks=1", "--set", "eval.trials=1",
             "--set", "eval.families=['AH']"]  # fmt: skip
    assert main(["eval", str(pocket_toml), *words, *small, "--json",
                 "--checkpoint", str(tmp_path / "broken")]) == 0  # fmt: skip
    assert json.loads(capsys.readouterr().out)["policy_version"] >= 1
    assert main(["export", str(tmp_path / "broken"), "--out", str(tmp_path / "model")]) == 0
    same(base_of(tmp_path / "model"), resumed)
