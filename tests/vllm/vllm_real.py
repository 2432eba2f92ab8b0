"""What the tests with the real vLLM share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rti import Context, Floats, Ids
from rti.config import ModelConfig
from rti_hf.chatml import ChatMLRenderer
from rti_vllm.policy import VllmPolicy

LONGEST = 1024
OPTIONS = {"max_model_len": LONGEST, "max_num_seqs": 16, "enforce_eager": True}


def bound(folder: Path, out: Path, **options: Any) -> VllmPolicy:
    """A policy over the model in a folder."""
    policy = VllmPolicy(**OPTIONS, **options)
    nothing: Any = None
    policy.bind(Context(0, ModelConfig(path=str(folder)), policy, nothing, nothing, None, out))
    return policy


def renderer_of(folder: Path) -> ChatMLRenderer:
    """The model's renderer."""
    renderer = ChatMLRenderer()
    nothing: Any = None
    renderer.bind(Context(0, ModelConfig(path=str(folder)), nothing, renderer, nothing))
    return renderer


def named(model: Any) -> dict[str, Any]:
    """Weights as a trainer gives them: by parameter name, a tied head left out."""
    return {name: p.detach() for name, p in model.named_parameters()}


def scored(model: Any, prompt: Ids, completion: Ids) -> Floats:
    """Logprobs of a completion by a plain forward pass of transformers."""
    import torch

    with torch.no_grad():
        ids = torch.tensor([prompt + completion])
        logprobs = model(ids).logits[0].float().log_softmax(-1)[len(prompt) - 1 : -1]
        return tuple(logprobs.gather(1, ids[0, len(prompt) :, None])[:, 0].tolist())


def apart(a: Sequence[Floats], b: Sequence[Floats]) -> tuple[float, float, int]:
    """Mean and greatest absolute difference, and of how many."""
    pairs = [(x, y) for s, t in zip(a, b, strict=True) for x, y in zip(s, t, strict=True)]
    gaps = [abs(x - y) for x, y in pairs]
    return sum(gaps) / len(gaps), max(gaps), len(gaps)


@contextlib.contextmanager
def perturbed(model: Any, by: float = 0.02) -> Iterator[Any]:
    """The model with noise on every weight, for as long as the block lasts."""
    import torch

    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    try:
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn(p.shape, generator=generator) * p.std() * by)
        yield model
    finally:
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(before[name])
