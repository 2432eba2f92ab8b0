"""Hugging Face transformers: policy, trainer, renderers. Heavy imports wait until they bind."""

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_hf.chatml import ChatMLRenderer
from rti_hf.export import command as export_command
from rti_hf.policy import HfPolicy
from rti_hf.prime import PrimeRenderer
from rti_hf.qwen import Qwen3Renderer, Qwen35Renderer, Qwen36Renderer
from rti_hf.smollm2 import command as smollm2_command
from rti_hf.trainer import HfTrainer


@hookimpl
def rti_policies() -> Mapping[str, Any]:
    """A transformers model in this process."""
    return {"hf": HfPolicy}


@hookimpl
def rti_trainers() -> Mapping[str, Any]:
    """The embedded torch trainer."""
    return {"hf": HfTrainer}


@hookimpl
def rti_renderers() -> Mapping[str, Any]:
    """Chat formats of real models."""
    return {
        "chatml": ChatMLRenderer,
        "qwen3": Qwen3Renderer,
        "qwen3.5": Qwen35Renderer,
        "qwen3.6": Qwen36Renderer,
        "prime": PrimeRenderer,
    }


@hookimpl
def rti_commands() -> Mapping[str, Any]:
    """`rti smollm2`, `rti export`."""
    return {"smollm2": smollm2_command, "export": export_command}
