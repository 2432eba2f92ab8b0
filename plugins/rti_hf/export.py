"""`rti export`: the model of a checkpoint as a plain Hugging Face folder, for any other program."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rti import ConfigError, PluginError, RunError
from rti_hf.state import ADAPTER_FOLDER, INDEX_SUFFIX, MODEL_FOLDER, tokenizer_files

DTYPES = ("bfloat16", "float32")
BASE = "base_model_name_or_path"


def command(parser: argparse.ArgumentParser) -> None:
    """Write the model of a run as a plain Hugging Face folder."""
    parser.description = (
        "Write the trained model of a run or checkpoint as a plain Hugging Face folder with its "
        "tokenizer. LoRA adapters are merged into the weights, or written apart with --adapter."
    )
    parser.add_argument("source", type=Path, metavar="RUN_OR_CHECKPOINT",
                        help="a checkpoint, or a run's folder for its newest one")  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, metavar="DIR",
                        help="the folder to write; it must be new or empty")  # fmt: skip
    parser.add_argument("--adapter", action="store_true",
                        help="write the LoRA adapters alone, in peft's format")  # fmt: skip
    parser.add_argument("--base", metavar="NAME",
                        help="with --adapter: the base model that the adapters name "
                        "(default: the folder that the run used)")  # fmt: skip
    parser.add_argument("--dtype", choices=DTYPES,
                        help="number format of the weights (default: as trained)")  # fmt: skip
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, _: object) -> int:
    from rti.engine import checkpoint_to_read

    if args.base and not args.adapter:
        raise ConfigError("export: --base names the base of an adapter. Add --adapter, or drop it.")
    checkpoint = checkpoint_to_read(args.source)
    try:
        export(checkpoint, args.out, args.adapter, args.base, args.dtype)
    except ImportError as error:
        raise PluginError(f"export: {error}. Install it: pip install 'rti-rl[hf]'") from error
    print(args.out)
    return 0


def export(
    checkpoint: Path,
    out: Path,
    adapter: bool = False,
    base: str | None = None,
    dtype: str | None = None,
) -> None:
    """Write the model of `checkpoint` into `out`, which appears whole or not at all.

    Args:
        checkpoint: a folder that the hf trainer wrote.
        out: new, or an empty folder.
        adapter: the adapters alone instead of the merged weights.
        base: what an exported adapter names as its base model; None for the run's own folder.
        dtype: "bfloat16" or "float32"; None keeps the bytes as they are.

    Raises:
        ConfigError: `out` is in use, or adapters are asked of a run that has none.
        RunError: the checkpoint holds no model, cannot be read, or `out` cannot be written.
    """
    model = checkpoint / MODEL_FOLDER
    if not (model / "config.json").is_file():
        raise RunError(
            f"{checkpoint} holds no folder {MODEL_FOLDER!r}: it was not written by the trainer "
            "'hf', or is not whole."
        )
    if adapter and not (checkpoint / ADAPTER_FOLDER).is_dir():
        raise ConfigError(
            f"{checkpoint} was trained without LoRA ([trainer] lora_rank = 0): there are no "
            "adapters. Leave out --adapter to export the whole model."
        )
    _check_free(out)
    from safetensors import SafetensorError

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        try:
            part.chmod(0o755)
            for source in _sources(checkpoint, adapter):
                if dtype is not None and source.suffix == ".safetensors":
                    _recode(source, part / source.name, dtype)
                else:
                    shutil.copyfile(source, part / source.name)
            if dtype is not None:
                _say_dtype(part, dtype)
            if base is not None:
                config = part / "adapter_config.json"
                _write(config, {**json.loads(config.read_text(encoding="utf-8")), BASE: base})
            part.rename(out)  # onto nothing, or onto an empty folder
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except (OSError, ValueError, SafetensorError) as error:
        raise RunError(f"export: {checkpoint} → {out}: {error}") from error


def _check_free(out: Path) -> None:
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise ConfigError(
            f"export: {out} is there already and is not an empty folder; nothing is overwritten. "
            "Choose another place with --out, or remove it."
        )


def _sources(checkpoint: Path, adapter: bool) -> Iterator[Path]:
    """The files to export, all into one flat folder: no two have the same name."""
    model = checkpoint / MODEL_FOLDER
    if adapter:
        yield from tokenizer_files(model)
        yield from sorted((checkpoint / ADAPTER_FOLDER).iterdir())
    else:
        yield from sorted(model.iterdir())


def _recode(source: Path, to: Path, dtype: str) -> None:
    """One file of tensors at a time, so that a large model needs the memory of one file."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    wanted = getattr(torch, dtype)
    with safe_open(source, framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            tensors[name] = tensor.to(wanted)
    save_file(tensors, to, metadata=metadata)
    to.chmod(0o644)  # safetensors is stingier than the umask


def _write(path: Path, table: dict[str, Any]) -> None:
    path.write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _say_dtype(folder: Path, dtype: str) -> None:
    """Let config and index tell the number format that the tensors now have."""
    config, index = folder / "config.json", [*folder.glob(f"*{INDEX_SUFFIX}")]
    if config.exists():
        table = _with_dtype(json.loads(config.read_text(encoding="utf-8")), dtype)
        _write(config, table if "torch_dtype" in table else {**table, "dtype": dtype})
    for path in index:
        table = json.loads(path.read_text(encoding="utf-8"))
        total = sum(map(_tensor_bytes, folder.glob("*.safetensors")))
        _write(path, {**table, "metadata": {**table.get("metadata", {}), "total_size": total}})


def _with_dtype(table: dict[str, Any], dtype: str) -> dict[str, Any]:
    """A config, and those inside it, with the format under the name that they have for it."""
    changed = dict(table)
    for key, value in table.items():
        if isinstance(value, dict):
            changed[key] = _with_dtype(value, dtype)
        elif key in ("dtype", "torch_dtype") and value is not None:
            changed[key] = dtype
    return changed


def _tensor_bytes(path: Path) -> int:
    """A safetensors file is the length of its header in 8 bytes, the header, the tensors."""
    with path.open("rb") as file:
        return path.stat().st_size - 8 - int.from_bytes(file.read(8), "little")
