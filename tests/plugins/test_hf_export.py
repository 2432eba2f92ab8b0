"""`rti export`: out of real checkpoints, through the front door, into what others can load."""

from __future__ import annotations

import json
import shutil

import pytest
from attrs import evolve
from hf_cases import BATCH, FAMILIES, optimiser, tiny, tiny_folder, trainer_of

from rti import checkpoint
from rti.checkpoint import State
from rti.cli import main

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
from rti_pocket.vocabulary import build_tokenizer  # noqa: E402

IDS = torch.tensor([[3, 4, 5, 6, 7, 8]])


def run_of(folder, at, **options):
    """A run's folder with one checkpoint, as the engine writes it; and its trainer."""
    trainer = trainer_of(folder, learning_rate=3e-2, **options)
    trainer.step(BATCH)
    checkpoint.save(at / "checkpoints", State(step=7), trainer.save, 2)
    return trainer


@pytest.fixture(scope="module", params=FAMILIES)
def lora(request, tmp_path_factory):
    at = tmp_path_factory.mktemp("run")
    base = tiny_folder(request.param, at / "base")
    return base, at / "run", run_of(base, at / "run", lora_rank=4)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    at = tmp_path_factory.mktemp("run")
    return at / "run", run_of(tiny_folder("qwen3-tied", at / "base"), at / "run")


def call(capsys, *words):
    code = main(["export", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def loaded(folder, **options):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, **options
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    return model.eval()


def logits(model):
    with torch.no_grad():
        return model(IDS).logits.float()


def check_tokenizer(folder, base):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (folder / name).read_bytes() == (base / name).read_bytes()
    transformers.AutoTokenizer.from_pretrained(folder)


def test_a_run_becomes_a_plain_folder(lora, tmp_path, capsys):
    base, run, trainer = lora
    code, out, _ = call(capsys, run, "--out", tmp_path / "new" / "model")
    assert code == 0
    assert out.strip() == str(tmp_path / "new" / "model")
    model = loaded(tmp_path / "new" / "model", dtype="auto")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, trainer.weights()[name]), name
    check_tokenizer(tmp_path / "new" / "model", base)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["model"]  # nothing is left over
    assert all(p.stat().st_mode & 0o444 == 0o444 for p in (tmp_path / "new/model").iterdir())


def test_the_adapter_apart_makes_the_same_model(lora, tmp_path, capsys):
    base, run, _ = lora
    source = run / "checkpoints/step-000007"
    for words, out in (((), "model"), (("--adapter",), "adapter")):
        assert call(capsys, source, "--out", tmp_path / out, *words)[0] == 0
    names = {p.name for p in (tmp_path / "adapter").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= names
    assert not names & {"config.json", "model.safetensors"}
    check_tokenizer(tmp_path / "adapter", base)
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)
    adapted = peft.PeftModel.from_pretrained(loaded(base), tmp_path / "adapter").eval()
    torch.testing.assert_close(
        logits(adapted), logits(loaded(tmp_path / "model")), rtol=1e-4, atol=1e-4
    )
    # By the base that its config names, as most programs do it.
    alone = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter").eval()
    assert torch.equal(logits(alone), logits(adapted))


def test_an_adapter_names_the_base_that_is_asked_for(lora, tmp_path, capsys):
    _, run, _ = lora
    words = (run, "--out", tmp_path / "a", "--adapter", "--base", "Some/Model")
    assert call(capsys, *words)[0] == 0
    config = json.loads((tmp_path / "a/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "Some/Model"
    assert config["r"] == 4
    code, _, err = call(capsys, run, "--out", tmp_path / "b", "--base", "Some/Model")
    assert code == 2
    assert "Add --adapter" in err


@pytest.mark.parametrize("words", [(), ("--adapter",)])
def test_another_number_format(lora, tmp_path, capsys, words):
    base, run, trainer = lora
    out = tmp_path / "out"
    assert call(capsys, run, "--out", out, "--dtype", "bfloat16", *words)[0] == 0
    if words:
        from safetensors.torch import load_file

        assert {t.dtype for t in load_file(out / "adapter_model.safetensors").values()} == {
            torch.bfloat16
        }
        assert (out / "adapter_config.json").is_file()
        peft.PeftModel.from_pretrained(loaded(base), out)
        return
    assert json.loads((out / "config.json").read_text())["dtype"] == "bfloat16"
    model = loaded(out, dtype="auto")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, trainer.weights()[name].bfloat16()), name


def test_a_model_in_several_files(tmp_path, capsys):
    """Each file is converted by itself, and the index still tells the truth."""
    at = tmp_path / "run/checkpoints/step-000001"
    model = tiny("qwen3")
    model.save_pretrained(at / "model", max_shard_size="30KB")
    build_tokenizer().save_pretrained(at / "model")
    (at / "state.json").write_text("{}")
    assert len(list((at / "model").glob("*.safetensors"))) > 2
    assert call(capsys, at, "--out", tmp_path / "out", "--dtype", "bfloat16")[0] == 0
    found = loaded(tmp_path / "out", dtype="auto")
    for name, parameter in model.named_parameters():
        assert torch.equal(dict(found.named_parameters())[name], parameter.bfloat16()), name
    sizes = [
        json.loads((f / "model.safetensors.index.json").read_text())["metadata"]["total_size"]
        for f in (at / "model", tmp_path / "out")
    ]
    assert sizes[1] * 2 == sizes[0] == 4 * sum(p.numel() for p in model.parameters())


def test_what_is_exported_can_be_trained_on(lora, tmp_path, capsys):
    _, run, trainer = lora
    assert call(capsys, run, "--out", tmp_path / "out")[0] == 0
    again = trainer_of(tmp_path / "out")
    pairs = [(3, 4, 5)], [(6, 7)]
    assert again.score(*pairs)[0] == pytest.approx(trainer.score(*pairs)[0], abs=1e-5)
    assert optimiser(again, tmp_path / "saved")["updates"] == 0


# --- what cannot be done --------------------------------------------------------------------


def test_nothing_is_overwritten(full, tmp_path, capsys):
    run, _ = full
    (tmp_path / "used").mkdir()
    (tmp_path / "used/mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("used", "file", "link"):
        code, _, err = call(capsys, run, "--out", tmp_path / name)
        assert code == 2
        assert "nothing is overwritten" in err
    assert {p.name for p in tmp_path.iterdir()} == {"used", "file", "link"}
    assert (tmp_path / "used/mine").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert call(capsys, run, "--out", tmp_path / "empty")[0] == 0
    loaded(tmp_path / "empty")


def test_an_adapter_of_a_run_without_one(full, tmp_path, capsys):
    code, _, err = call(capsys, full[0], "--out", tmp_path / "out", "--adapter")
    assert code == 2
    assert "was trained without LoRA" in err
    assert not (tmp_path / "out").exists()


def test_what_is_no_checkpoint(full, tmp_path, capsys):
    code, _, err = call(capsys, tmp_path, "--out", tmp_path / "out")
    assert code == 2
    assert "neither a checkpoint nor a run with one" in err
    at = tmp_path / "foreign"
    at.mkdir()
    (at / "state.json").write_text("{}")
    code, _, err = call(capsys, at, "--out", tmp_path / "out")
    assert code == 1
    assert "holds no folder 'model'" in err


def test_a_failure_in_the_middle_leaves_nothing(full, tmp_path, capsys):
    broken = tmp_path / "broken"
    shutil.copytree(full[0] / "checkpoints/step-000007", broken)
    (broken / "model/model.safetensors").write_bytes(b"not tensors")
    code, _, err = call(capsys, broken, "--out", tmp_path / "out", "--dtype", "bfloat16")
    assert code == 1
    assert "rti: export: " in err
    assert "Traceback" not in err
    assert {p.name for p in tmp_path.iterdir()} == {"broken"}


def test_the_newest_checkpoint_is_taken(full, tmp_path, capsys):
    run, trainer = full
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    trainer.step(evolve(BATCH, samples=BATCH.samples[:2]))
    checkpoint.save(copy / "checkpoints", State(step=8), trainer.save, 2)
    assert call(capsys, copy, "--out", tmp_path / "out")[0] == 0
    for name, parameter in loaded(tmp_path / "out").named_parameters():
        assert torch.equal(parameter, trainer.weights()[name]), name
