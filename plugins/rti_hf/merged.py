"""A LoRA layer that computes with its merged weight, rounded as the policy will hold it.

peft computes W x + scale · B A x. In bfloat16 that is another model than the merged one, which
alone can be sampled from: W + scale · B A is rounded to eight bits once more, and π_θ would differ
from π_roll at equal weights (on SmolLM2-135M by .056 a token where the update itself had moved
logprobs by .18). So the merged weight is what a layer uses here. Its gradients are LoRA's own,
through the low rank; the rounding counts as if it were not there (straight-through).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.nn.functional import linear

ADAPTER = "default"


def merged_weight(layer: Any) -> torch.Tensor:
    """W + scale · B A of a peft layer: summed in float32, rounded once to the dtype of W."""
    weight = layer.get_base_layer().weight.detach()
    delta = layer.get_delta_weight(ADAPTER).detach()
    merged: torch.Tensor = (weight.float() + delta.float()).to(weight.dtype)
    return merged


def use_merged_weight(layer: Any) -> None:
    """Let a peft layer on a linear one compute with its merged weight while adapters are on."""
    layer.forward = functools.partial(_forward, layer)


def _forward(layer: Any, x: torch.Tensor) -> torch.Tensor:
    base = layer.get_base_layer()
    if layer.disable_adapters:
        return linear(x, base.weight, base.bias)
    a, b = layer.lora_A[ADAPTER].weight, layer.lora_B[ADAPTER].weight
    result: torch.Tensor = _Merged.apply(x, a, b, layer)  # type: ignore[no-untyped-call]
    return result


class _Merged(torch.autograd.Function):
    """y = x Mᵀ + bias with M the merged weight, which backward makes again instead of keeping."""

    @staticmethod
    def forward(ctx: Any, x: Any, a: Any, b: Any, layer: Any) -> Any:
        ctx.save_for_backward(x, a, b)
        ctx.layer = layer
        return linear(x, merged_weight(layer), layer.get_base_layer().bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        x, a, b = ctx.saved_tensors
        grad_x = gradient @ merged_weight(ctx.layer) if ctx.needs_input_grad[0] else None
        scale = ctx.layer.scaling[ADAPTER]
        x_N_I, grad_N_O = (t.flatten(0, -2).to(a.dtype) for t in (x, gradient))
        grad_a = scale * (grad_N_O @ b).T @ x_N_I
        grad_b = scale * grad_N_O.T @ (x_N_I @ a.T)
        return grad_x, grad_a, grad_b, None
