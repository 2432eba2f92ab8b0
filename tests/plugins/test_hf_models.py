"""Models, devices and number formats that cannot be used are told in the user's words."""

from __future__ import annotations

import json
import shutil

import pytest
from hf_cases import VOCABULARY, context, policy_of, tiny_folder, trainer_of

from rti import ConfigError, RunError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from rti_hf.forward import memory_explained  # noqa: E402
from rti_hf.models import load_model  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    return tiny_folder("llama", tmp_path / "model")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "is no device that torch knows: write cpu, cuda or cuda:1"),
        ("cuda:99", 'sees . CUDA devices here. Set device = "cpu"'),
        ("meta", "rti runs on cpu, cuda and mps"),
    ],
)
def test_a_device_that_is_not_here(folder, device, message):
    for made in (policy_of, trainer_of):
        with pytest.raises(ConfigError, match=message):
            made(folder, device=device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_cuda(folder):
    with pytest.raises(ConfigError, match=r"device = 'cuda': torch .* sees 0 CUDA devices"):
        trainer_of(folder, device="cuda")


def test_a_number_format_that_is_none(folder):
    with pytest.raises(ConfigError, match="dtype = 'float8': it must be one of float32, bfloat16"):
        load_model(str(folder), "float8", "cpu", 1)


def test_pickled_weights_are_not_read(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"no \*.safetensors in there"):
        trainer_of(folder)


def spoil(path, **changes):
    table = json.loads(path.read_text())
    path.write_text(json.dumps({**table, **changes}))


def test_files_that_are_broken(folder, tmp_path):
    for name, how in {
        "cut": lambda f: (f / "model.safetensors").write_bytes(b"\x08" + b"\x00" * 20),
        "unknown": lambda f: spoil(f / "config.json", model_type="nobody-knows"),
        "larger": lambda f: spoil(f / "config.json", hidden_size=64),
        "words": lambda f: (f / "config.json").write_text("{"),
    }.items():
        broken = tmp_path / name
        shutil.copytree(folder, broken)
        how(broken)
        with pytest.raises(ConfigError, match="transformers cannot load it") as error:
            trainer_of(broken)
        assert str(broken) in str(error.value)


def test_a_model_that_is_not_whole_is_not_filled_up_with_random_numbers(folder):
    spoil(folder / "config.json", num_hidden_layers=3)
    with pytest.raises(ConfigError, match="9 of the model's parameters are not in its safetensors"):
        trainer_of(folder)


def test_a_head_that_does_more_than_multiply_is_refused(tmp_path):
    from rti_pocket.warmstart import save_base

    config = transformers.Gemma2Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, final_logit_softcapping=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    save_base(transformers.Gemma2ForCausalLM(config), tmp_path)
    with pytest.raises(ConfigError, match="Gemma2ForCausalLM changes its logits after the head"):
        trainer_of(tmp_path)


def test_running_out_of_memory_says_what_to_change():
    with (
        pytest.raises(RunError, match=r"allocate 2.00 GiB\. Lower .*micro_batch_tokens"),
        memory_explained(),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")


def test_a_model_that_can_be_used_is_in_its_format_and_in_evaluation(folder):
    for dtype in ("float32", "bfloat16"):
        model = load_model(str(folder), dtype, "cpu", 1)
        assert {p.dtype for p in model.parameters()} == {getattr(torch, dtype)}
        assert not model.training
    assert context(folder).model.path == str(folder)
