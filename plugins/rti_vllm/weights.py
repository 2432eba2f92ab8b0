"""Weights as vLLM reads them: a Hugging Face folder, written whole or not at all.

A model may tie its output head to its input embedding. vLLM's CPU build multiplies by a packed
copy of the head that it makes once: after a push of a tied model it would go on with the old
head. There the head is therefore written out, and the config in the folder says that it is not
tied (`untie`).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field

from rti import ConfigError, RunError

HEAD = "lm_head.weight"
EMBEDDING = "embed_tokens.weight"
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json", ".h5", ".msgpack")


def is_tied(source: Path) -> bool:
    """Whether the model in a folder ties its head to its embedding."""
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    inner = config.get("text_config") or {}
    return bool(config.get("tie_word_embeddings", inner.get("tie_word_embeddings", False)))


def checkpoint_names(source: Path) -> set[str]:
    """Names of the tensors in a folder's safetensors files.

    Raises:
        ConfigError: when it has none.
    """
    from safetensors import safe_open

    names: set[str] = set()
    for path in sorted(source.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            names.update(file.keys())
    if not names:
        raise ConfigError(
            f"[model] path: {source} has no *.safetensors; vLLM needs weights in that format."
        )
    return names


@define
class Exporter:
    """Turns a trainer's weights into what vLLM loads, for the model in `source`.

    Args:
        source: the Hugging Face folder of `[model] path`.
        untie: write a tied head out on its own.
    """

    source: Path
    untie: bool = False
    _names: set[str] = field(init=False, factory=set)

    @property
    def unties(self) -> bool:
        """Whether it writes out a head that the model ties."""
        return self.untie and is_tied(self.source)

    def tensors(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """The weights on the CPU, under the names of the checkpoint.

        Raises:
            RunError: for a name the checkpoint does not have: vLLM would leave it out in silence.
        """
        self._names = self._names or checkpoint_names(self.source)
        tied, found = is_tied(self.source), dict[str, Any]()
        for name, tensor in weights.items():
            if name == HEAD and tied:
                continue  # the embedding again, under another name
            if name not in self._names:
                raise RunError(
                    f"[policy] (vllm) the trainer has weights {name!r}, which the files in "
                    f"{self.source} do not have: vLLM would not load them. This architecture "
                    "renames its weights on loading and cannot be pushed to vLLM yet."
                )
            found[name] = tensor.detach().to("cpu").contiguous()
        if self.unties:
            found[HEAD] = self._embedding(found).clone()
        return found

    def _embedding(self, tensors: Mapping[str, Any]) -> Any:
        named = [name for name in tensors if name.endswith(EMBEDDING)]
        if len(named) != 1:
            raise RunError(
                f"[policy] (vllm) the model in {self.source} ties its head to its embedding, and "
                f"among its weights {len(named)} are named *{EMBEDDING}: on a CPU vLLM would keep "
                "the old head after a push. Use [policy] use = 'hf', or a GPU."
            )
        return tensors[named[0]]

    def stored(self) -> Iterator[tuple[str, Any]]:
        """The weights as they lie in `source`."""
        from safetensors import safe_open

        for path in sorted(self.source.glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118 - the file is no mapping
                    yield name, file.get_tensor(name)

    def write(self, folder: Path, weights: Mapping[str, Any] | None = None) -> None:
        """Write a folder vLLM can start from and reload: weights, config, tokenizer.

        Args:
            folder: must not exist yet.
            weights: by parameter name; None for those in `source`.
        """
        from safetensors.torch import save_file

        tensors = self.tensors(dict(self.stored()) if weights is None else weights)
        draft = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for path in self.source.iterdir():
            if path.is_file() and not path.name.endswith(WEIGHT_SUFFIXES):
                shutil.copy(path, draft / path.name)
        if self.unties:
            _write_untied(draft / "config.json")
        save_file(tensors, draft / "model.safetensors", metadata={"format": "pt"})
        os.replace(draft, folder)


def _write_untied(path: Path) -> None:
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tie_word_embeddings"] = False
    if isinstance(config.get("text_config"), dict):
        config["text_config"]["tie_word_embeddings"] = False
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")


@define
class WeightFolders:
    """Where the folders go: one a push, and only the last one is kept."""

    root: Path
    _owner: str = field(init=False, factory=lambda: f"{socket.gethostname()}-{os.getpid()}")
    _count: int = field(init=False, default=0)

    def next(self) -> Path:
        """A path for new weights. Folders that a killed run has left on this host are removed."""
        if not self._count:
            self.root.mkdir(parents=True, exist_ok=True)
            for folder in self.root.iterdir():
                if _left_behind(folder.name):
                    shutil.rmtree(folder, ignore_errors=True)
        self._count += 1
        return self.root / f"weights-{self._owner}-{self._count}"

    def remove(self, keep: Path | None = None) -> None:
        """Remove this run's folders but one."""
        if self.root.is_dir():
            for folder in self.root.iterdir():
                mine = folder.name.lstrip(".").startswith(f"weights-{self._owner}-")
                if mine and folder != keep:
                    shutil.rmtree(folder, ignore_errors=True)


def _left_behind(name: str) -> bool:
    """Whether a folder of weights is of this host and of a process that is no more."""
    prefix = f"weights-{socket.gethostname()}-"
    bare = name.lstrip(".")
    if not bare.startswith(prefix):
        return False
    pid = bare.removeprefix(prefix).split("-")[0]
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
