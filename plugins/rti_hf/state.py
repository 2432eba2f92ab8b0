"""The files of a checkpoint: plain folders and safetensors, no pickle."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rti import RunError
from rti_hf.lora import Adapters

OPTIMISER_FILE = "optimiser.safetensors"
MODEL_FOLDER = "model"
ADAPTER_FOLDER = "adapter"
CONFIGS = ("config.json", "generation_config.json")
INDEX_SUFFIX = ".index.json"
TOKENIZER_SUFFIXES = (".json", ".jinja", ".txt", ".model", ".tiktoken")
UPDATES, ALPHA = "updates", "lora_alpha"


def write_model(folder: Path, model: Any, adapters: Adapters | None, tokenizer: Path) -> None:
    """Write `model/`, a plain Hugging Face folder; with LoRA `adapter/` too.

    Adapters are merged in `model/`, and apart in `adapter/`, in peft's own format. The files of
    the tokenizer are copied from the folder `tokenizer` as they are: loading and saving it again
    may change it.
    """
    at = folder / MODEL_FOLDER
    if adapters is None:
        model.save_pretrained(at)
    else:
        model.save_pretrained(at, state_dict=adapters.state())
        adapters.save(folder / ADAPTER_FOLDER)
    for source in tokenizer_files(tokenizer):
        shutil.copyfile(source, at / source.name)


def tokenizer_files(folder: Path) -> list[Path]:
    """The files of a model folder that are neither weights nor the model's configuration."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.suffix in TOKENIZER_SUFFIXES
        and path.name not in CONFIGS
        and not path.name.endswith(INDEX_SUFFIX)
    ]


def write_tensors(folder: Path, tensors: Mapping[str, Any]) -> None:
    """Write the trainer's state: number of updates, masters, optimiser."""
    from safetensors.torch import save_file

    save_file(dict(tensors), folder / OPTIMISER_FILE)


def read_tensors(folder: Path) -> dict[str, Any]:
    """What `write_tensors` wrote.

    Raises:
        RunError: when the file is missing or is no such file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Any] = load_file(folder / OPTIMISER_FILE)
        tensors[UPDATES]
    except (OSError, SafetensorError, KeyError) as error:
        raise RunError(f"{folder}: the trainer's state cannot be read: {error}") from error
    return tensors
