"""What `rti doctor` makes of sizes: headers, the estimate of a run, and calls made from schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from doctor_cases import RECIPES, Capture, doctor, one, sets
from hypothesis import given
from hypothesis import strategies as st

from rti.config import load_config
from rti.doctor import headers, memory
from rti.doctor.headers import read_shape
from rti.doctor.memory import estimate
from rti.doctor.schemas import arguments
from rti.errors import RunError
from rti.registry import Registry

GIB = 2**30


def qwen3_8b(folder: Path) -> Path:
    """The files of Qwen3-8B as far as sizes go: its config, and headers without their data."""
    h, f, kv, vocabulary = 4096, 12288, 1024, 151936
    config = {
        "hidden_size": h, "intermediate_size": f, "num_hidden_layers": 36, "head_dim": 128,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": vocabulary,
        "max_position_embeddings": 40960,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocabulary, h), "lm_head.weight": (vocabulary, h),
        "model.norm.weight": (h,),
    }  # fmt: skip
    for i in range(36):
        layer = f"model.layers.{i}"
        for name, shape in {
            "self_attn.q_proj": (h, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h),
            "self_attn.o_proj": (h, h), "self_attn.q_norm": (128,), "self_attn.k_norm": (128,),
            "mlp.gate_proj": (f, h), "mlp.up_proj": (f, h), "mlp.down_proj": (h, f),
            "input_layernorm": (h,), "post_attention_layernorm": (h,),
        }.items():  # fmt: skip
            shapes[f"{layer}.{name}.weight"] = shape
    names = sorted(shapes)
    files = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, some in files.items():
        table: dict[str, Any] = {
            n: {"dtype": "BF16", "shape": shapes[n], "data_offsets": [0, 0]} for n in some
        }
        raw = json.dumps({**table, "__metadata__": {"format": "pt"}}).encode()
        (folder / file).write_bytes(len(raw).to_bytes(8, "little") + raw)
    index = {"weight_map": {n: file for file, some in files.items() for n in some}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_sizes_come_from_headers(tmp_path: Path) -> None:
    shape = read_shape(qwen3_8b(tmp_path))
    assert shape.parameters == 8_190_735_360  # as the model's own index says
    assert (shape.layers, shape.kv_width, shape.vocabulary) == (36, 1024, 151936)


def test_the_estimate_of_a_run(tmp_path: Path) -> None:
    shape = read_shape(qwen3_8b(tmp_path))
    registry = Registry.load()
    config = load_config(RECIPES / "tau2-telecom-qwen3-8b-self.toml")
    trainer = registry.build(config.trainer)
    cost = estimate(shape, config, trainer, True, 20480)
    p = shape.parameters
    assert cost.weights == 2 * p
    # rank 32 on q, k, v, o, gate, up, down of 36 layers; float32 adapters with Adam's two moments
    a = 36 * 32 * (2 * 8192 + 2 * 5120 + 3 * 16384)
    assert cost.optimiser == 12 * a
    assert cost.gradients == 4 * a
    assert cost.merged == 2 * p
    assert cost.kv_token == 36 * 2 * 1024 * 2
    assert cost.kv == 36 * 2 * 1024 * 2 * 20480 * 64
    assert 20 * GIB < cost.update < 60 * GIB

    whole = load_config(RECIPES / "tau2-telecom-qwen3-8b-self.toml", ["trainer.lora_rank=0"])
    cost = estimate(shape, whole, registry.build(whole.trainer), False, 20480)
    assert cost.optimiser == 12 * p  # Adam's moments and float32 masters
    assert cost.gradients == 4 * p
    assert cost.merged == 0
    assert cost.update > (2 + 2 + 12 + 4) * p


def test_a_teacher_of_the_run_counts(tmp_path: Path, pocket_toml: Path, capsys: Capture) -> None:
    shape = read_shape(qwen3_8b(tmp_path))
    config = load_config(RECIPES / "tau2-telecom-qwen3-8b-self.toml")
    trainer = Registry.load().build(config.trainer)
    for sleeps in (True, False):
        alone = estimate(shape, config, trainer, sleeps, 20480)
        taught = estimate(shape, config, trainer, sleeps, 20480, shape)
        assert taught.update - alone.update == 2 * shape.parameters
        assert taught.rollout - alone.rollout == 2 * shape.parameters

    words = ["--offline", "--only", "memory"]
    for changes, line in (
        (["objective.use=opd", "teacher.weights=rti_pocket:base"], "teacher: weights 1."),
        (["objective.use=opd", "teacher.weights=nowhere"], "teacher: not counted"),
        (["teacher.weights=rti_pocket:base"], ""),
    ):
        _, findings = doctor(capsys, pocket_toml, *words, *sets(*changes))
        for check in ("update", "rollouts"):
            lines = [d for d in one(findings, check)["details"] if d.startswith("teacher")]
            assert [d.startswith(line) for d in lines] == ([True] if line else [])


def test_a_run_that_does_not_fit_is_not_loaded(
    pocket_toml: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 20)
    code, findings = doctor(
        capsys, pocket_toml, "--only", "memory,policy", *sets("policy.use=cannot-load")
    )
    assert code == 1
    for check in ("update", "rollouts"):
        found = one(findings, check)
        assert found["level"] == "warning"
        assert "of 1.0 MB free on cpu: it may not fit" in found["text"]
    assert "they were not loaded" in one(findings, "loads", "policy")["text"]


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    folder = qwen3_8b(tmp_path)
    (folder / "a.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(RunError, match="Git LFS pointer"):
        read_shape(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(RunError):
        read_shape(folder)
    assert headers.MOST_HEADER >= 100_000_000


# --- arguments from schemas -----------------------------------------------------------------------

LEAVES: list[dict[str, Any]] = [
    {"type": "string"}, {"type": "integer", "minimum": 3}, {"type": "number"}, {"type": "boolean"},
    {"type": ["string", "null"]}, {"enum": ["b", "c"]}, {"const": 4}, {"$ref": "#/$defs/Place"},
    {"$ref": "#/$defs/Loop"}, {"$ref": "#/nowhere"}, {},
    {"anyOf": [{"type": "null"}, {"type": "integer"}]},
]  # fmt: skip
DEFS = {
    "Place": {"type": "object", "properties": {"city": {"type": "string"}}},
    "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}]},
}
SCHEMAS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(lambda i: {"type": "array", "items": i}, inner),
        st.builds(
            lambda p: {"type": "object", "properties": p},
            st.dictionaries(st.sampled_from("abc"), inner),
        ),
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["x", "y", "z"]), SCHEMAS))
def test_arguments_have_every_property(properties: dict[str, Any]) -> None:
    made = arguments({"type": "object", "properties": properties, "$defs": DEFS}, "text")
    assert made.keys() == properties.keys()
    assert json.loads(json.dumps(made)) == made
    for name, schema in properties.items():
        kind = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list,
                "object": dict}.get(str(schema.get("type")))  # fmt: skip
        assert kind is None or type(made[name]) is kind
        if "enum" in schema:
            assert made[name] in schema["enum"]


def test_arguments_of_a_real_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place"},
            "ids": {"type": "array", "items": {"type": "integer", "minimum": 5}, "minItems": 2},
            "mode": {"anyOf": [{"type": "null"}, {"enum": ["fast"]}]},
        },
        "$defs": DEFS,
    }
    assert arguments(schema, "x") == {"place": {"city": "x"}, "ids": [5, 5], "mode": "fast"}
