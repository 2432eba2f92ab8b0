"""The reference policy π_ref of a KL penalty: the model as `[model] path` holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import define

from rti import RunError
from rti_hf.lora import Adapters

MARK = 64
PREFIX = "base/"


@define
class Reference:
    """The initial model: the trained one with its adapters off, or a frozen copy of it."""

    adapters: Adapters | None
    copy: Any = None

    @classmethod
    def of(cls, model: Any, adapters: Adapters | None) -> Reference:
        """Call before training, and before anything is read back."""
        import copy

        if adapters is not None:
            return cls(adapters)
        return cls(None, copy.deepcopy(model).eval().requires_grad_(False))

    @contextmanager
    def model(self) -> Iterator[Any]:
        """The model to run, without gradients."""
        import torch

        with torch.no_grad():
            if self.adapters is None:
                yield self.copy
            else:
                with self.adapters.off():
                    yield self.adapters.model


def marks(model: Any) -> dict[str, Any]:
    """The first numbers of each parameter: enough to know a model again."""
    return {
        PREFIX + name: p.detach().flatten()[:MARK].cpu().clone()
        for name, p in model.named_parameters()
    }


def check_marks(own: Mapping[str, Any], tensors: Mapping[str, Any], source: object) -> None:
    """Refuse a checkpoint that was trained from another model than the one at hand.

    Raises:
        RunError: names `source` and the first parameter that differs.
    """
    import torch

    for name, mark in own.items():
        if name in tensors and not torch.equal(tensors[name], mark):
            raise RunError(
                f"{source} was trained from another model than [model] path holds now "
                f"({name.removeprefix(PREFIX)} differs). With LoRA or a KL penalty that model is "
                "part of the run: give back the folder it began with."
            )
