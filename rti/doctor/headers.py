"""What a model's folder says about its size, without loading a weight."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from rti.errors import RunError

MOST_HEADER = 100 << 20
"""Bytes: the limit that the safetensors format itself sets to its header."""


@frozen
class Shape:
    """Numbers that memory depends on.

    Attributes:
        tensors: shape of every stored tensor, by name; tied ones are stored once.
        layers: decoder layers (L).
        hidden: width of the residual stream (h).
        inner: width of the feed-forward layer (f).
        kv_width: numbers of a key, or of a value, a token and layer (heads × head size).
        vocabulary: rows of the embedding (V).
    """

    tensors: Mapping[str, tuple[int, ...]]
    layers: int
    hidden: int
    inner: int
    kv_width: int
    vocabulary: int

    @property
    def parameters(self) -> int:
        """Numbers stored in all."""
        return sum(math.prod(shape) for shape in self.tensors.values())


def read_shape(folder: Path) -> Shape:
    """From `config.json` and the headers of the safetensors files.

    Raises:
        RunError: for a file that cannot be read, or a config without the sizes of a decoder.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        tensors: dict[str, tuple[int, ...]] = {}
        for file in _files(folder):
            tensors.update(_header(file))
        text: Mapping[str, Any] = config.get("text_config") or config
        heads = text["num_attention_heads"]
        hidden = text["hidden_size"]
        head = text.get("head_dim") or hidden // heads
        return Shape(
            tensors,
            layers=text["num_hidden_layers"],
            hidden=hidden,
            inner=text.get("intermediate_size") or 4 * hidden,
            kv_width=(text.get("num_key_value_heads") or heads) * head,
            vocabulary=text["vocab_size"],
        )
    except KeyError as error:
        raise RunError(
            f"{folder}/config.json has no {error}: memory is estimated for decoders of the common "
            "layout only"
        ) from None
    except (OSError, ValueError) as error:
        raise RunError(f"{folder}: the model's files cannot be read: {error}") from error


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return [folder / name for name in sorted(set(names))]
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise OSError("there is no *.safetensors")
    return files


def _header(file: Path) -> dict[str, tuple[int, ...]]:
    """Shapes by name. The format: 8 bytes of little-endian length, then that much JSON."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= MOST_HEADER:
            raise OSError(f"{file.name} is no safetensors file (a Git LFS pointer, maybe)")
        header = json.loads(stream.read(length))
    return {n: tuple(t["shape"]) for n, t in header.items() if n != "__metadata__"}
