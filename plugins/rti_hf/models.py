"""Loading a causal language model from a local folder, in the dtype and place the config names."""

from __future__ import annotations

from typing import Any

from rti import ConfigError, model_folder

DTYPES = ("float32", "bfloat16")
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
    """A causal language model in evaluation mode, from safetensors only.

    Raises:
        ConfigError: for a folder, number format or device that cannot be used.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    if dtype not in DTYPES:
        raise ConfigError(f"[model] dtype = {dtype!r}: it must be one of {', '.join(DTYPES)}.")
    place = _device(device)
    folder = model_folder(path)
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(
            f"[model] path = {path!r}: no *.safetensors in there. Pickled weights (*.bin, *.pt) "
            "are never read: load them where you trust them and save them again by "
            "save_pretrained(folder)."
        )
    disable_progress_bar()  # a bar a load drowns what the run has to say
    torch.set_num_threads(threads)
    try:
        model, found = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, dtype),
            local_files_only=True,
            use_safetensors=True,
            attn_implementation=attention_for(device),
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise ConfigError(
            f"[model] path = {path!r}: transformers cannot load it: "
            f"{str(error).strip().partition(chr(10))[0]}"
        ) from error
    if found["missing_keys"]:  # transformers would go on with random numbers
        names = sorted(found["missing_keys"])
        raise ConfigError(
            f"[model] path = {path!r}: {len(names)} of the model's parameters are not in its "
            f"safetensors files, {names[0]} among them. The folder is not whole: copy it again."
        )
    return model.to(place).eval()


def without_dropout(model: Any) -> None:
    """Turn off every dropout of a model, for as long as it lives."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():  # attention_dropout is a number, no module
            if name.endswith("dropout") and isinstance(value, float):
                setattr(module, name, 0.0)


def _device(name: str) -> Any:
    """The device that torch can really use under this name."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(
            f"[model] device = {name!r} is no device that torch knows: write cpu, cuda or cuda:1."
        ) from None
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if not torch.cuda.is_available() or (device.index or 0) >= count:
            raise ConfigError(
                f"[model] device = {name!r}: torch {torch.__version__} sees {count} CUDA devices "
                'here. Set device = "cpu", or install a CUDA build of torch and its driver.'
            )
    elif device.type == "mps":
        if not torch.backends.mps.is_available():
            raise ConfigError(f'[model] device = {name!r} is not here. Set device = "cpu".')
    elif device.type != "cpu":
        raise ConfigError(
            f"[model] device = {name!r}: rti runs on cpu, cuda and mps. Set device to one of them."
        )
    return device
