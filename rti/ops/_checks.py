"""What every function here asks of its tensors, in one place and with one wording."""

from __future__ import annotations

import torch
from torch import Tensor

from rti.errors import NumericsError

LOGPROB_TOLERANCE = 1e-4
"""How far above 0 rounding may lift a logprob (log-softmax in bf16 or fp32)."""


def check_values(name: str, values: Tensor, dims: int | None = None) -> None:
    """Refuse an empty tensor, NaN, ±inf and, where `dims` is given, another number of dimensions.

    Raises:
        NumericsError: names the tensor, what is wrong with it, and where.
    """
    check_shape(name, values, dims)
    _refuse(name, values, ~torch.isfinite(values), "must be finite")


def check_logprobs(name: str, logprobs: Tensor, dims: int | None = None) -> None:
    """As `check_values`, but for logprobs: −inf passes, anything above 0 plus rounding does not.

    Raises:
        NumericsError: names the tensor, what is wrong with it, and where.
    """
    check_shape(name, logprobs, dims)
    _refuse(name, logprobs, logprobs.isnan(), "must be a logprob")
    wrong = logprobs > LOGPROB_TOLERANCE
    _refuse(name, logprobs, wrong, f"must be a logprob, at most {LOGPROB_TOLERANCE:g}")


def check_shape(name: str, values: Tensor, dims: int | None = None) -> None:
    """Refuse an empty tensor and, where `dims` is given, another number of dimensions.

    Raises:
        NumericsError: names the tensor and its shape.
    """
    if dims is not None and values.dim() != dims:
        raise NumericsError(f"{name} has shape {tuple(values.shape)}: must have {dims} dimension")
    if values.numel() == 0:
        raise NumericsError(f"{name} is empty (shape {tuple(values.shape)})")


def check_same_shape(**tensors: Tensor) -> None:
    """Refuse tensors of different shapes; broadcasting would hide a misaligned token.

    Raises:
        NumericsError: lists every name with its shape.
    """
    if len({tuple(t.shape) for t in tensors.values()}) > 1:
        shapes = ", ".join(f"{name} {tuple(t.shape)}" for name, t in tensors.items())
        raise NumericsError(f"must be of one shape: {shapes}")


def _refuse(name: str, values: Tensor, wrong: Tensor, wanted: str) -> None:
    if bool(wrong.any()):
        where = tuple(wrong.nonzero()[0].tolist())
        index = ", ".join(map(str, where))
        raise NumericsError(f"{name}[{index}] = {values[where].item()!r}: {wanted}")
