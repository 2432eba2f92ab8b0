"""Loading a causal language model from a local folder, in the dtype and place the config names."""

from __future__ import annotations

from typing import Any

from rti import model_folder

GROUPED = "rti_grouped"


def attention_for(device: str) -> str:
    """The attention implementation for a device.

    With a mask, transformers' "sdpa" copies every key and value once for each query head that
    shares it. On a CPU torch can share them in place, seven times faster over a long context; on
    CUDA that would fall back to a slow kernel, so there the stock implementation stays.
    """
    if device != "cpu":
        return "sdpa"
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    def grouped(
        module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **kwargs: Any
    ) -> tuple[Any, None]:
        out = torch.nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=attention_mask,
            is_causal=attention_mask is None and query.shape[2] > 1,
            scale=kwargs.get("scaling"),
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register(GROUPED, grouped)
    AttentionMaskInterface.register(GROUPED, sdpa_mask)
    return GROUPED


def load_model(path: str, dtype: str, device: str, threads: int) -> Any:
    """A causal language model in evaluation mode, from safetensors only."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # a bar a load drowns what the run has to say
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(
        model_folder(path),
        dtype=getattr(torch, dtype),
        local_files_only=True,
        use_safetensors=True,
        attn_implementation=attention_for(device),
    )
    return model.to(device).eval()
