"""What the tests of the vLLM policy share: a tiny model folder, and a policy bound to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from rti import Context, RequestKey, SamplingParams
from rti.config import ModelConfig
from rti_vllm.policy import VllmPolicy

T = TypeVar("T")
STOP = (2,)
PROMPT = (5, 6, 7, 8)


def model_with(folder: Path, shift: float = 0.0, tied: bool = True) -> Path:
    """A folder that the plug-in takes for a Hugging Face model; the fake server reads `shift`."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    config = {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": tied}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    tensors = weights(shift)
    if not tied:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    save_file(tensors, folder / "model.safetensors")
    return folder


def weights(shift: float) -> dict[str, Any]:
    """Weights of that model."""
    import torch

    return {
        "model.embed_tokens.weight": torch.full((4, 2), shift),
        "model.norm.weight": torch.ones(2),
    }


def bound(model: Path, out: Path | None = None, **options: Any) -> VllmPolicy:
    """A policy over that model."""
    policy = VllmPolicy(**options)
    nothing: Any = None
    config = ModelConfig(path=str(model))
    policy.bind(Context(0, config, policy, nothing, nothing, None, out or model.parent / "out"))
    return policy


def use(policy: VllmPolicy, work: Callable[[VllmPolicy], Awaitable[T]]) -> T:
    """Run `work` on the policy in one event loop, and close the policy."""

    async def run() -> T:
        try:
            return await work(policy)
        finally:
            await policy.close()

    return asyncio.run(run())


async def one(policy: VllmPolicy, rollout: int = 0, max_new_tokens: int = 8, **more: Any) -> Any:
    """One completion of PROMPT."""
    params = SamplingParams(max_new_tokens, **more.pop("params", {}))
    key = RequestKey(task="t", rollout=rollout, **more)
    [completion] = await policy.sample([PROMPT], params, [key], STOP)
    return completion
