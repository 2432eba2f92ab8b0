"""LoRA through `peft`: adapters on a frozen model, and the weights that the two make together."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from attrs import define

from rti import ConfigError, PluginError
from rti.convert import did_you_mean, listed

ALL_LINEAR = "all-linear"
WEIGHTS_FILE = "adapter_model.safetensors"


@define
class Adapters:
    """LoRA adapters that `attach` put into a model (arXiv 2106.09685).

    An adapted layer uses W + scale · B A in place of W, with scale = alpha / rank: see
    `rti_hf.merged`. A and B are float32 whatever the model's dtype is. B begins as 0, so that
    training begins at the very model.
    """

    model: Any
    peft: Any

    @classmethod
    def attach(
        cls, model: Any, rank: int, alpha: float, targets: Sequence[str], seed: int
    ) -> Adapters:
        """Freeze `model` and put adapters into its layers `targets`, drawn by `seed`.

        `["all-linear"]` stands for every linear layer but the head; embeddings cannot be adapted.
        There is no dropout: it would make π_θ differ from π_roll at equal weights.

        Raises:
            PluginError: when `peft` is not installed.
            ConfigError: for a target that the model does not have, or that is tied.
        """
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError as error:
            raise PluginError(
                f"[trainer] lora_rank = {rank} needs the package 'peft', which cannot be imported "
                f"({error}). Install it: pip install 'rti-rl[lora]', or set lora_rank = 0."
            ) from error
        import torch

        from rti_hf.merged import use_merged_weight

        everything = list(targets) == [ALL_LINEAR]
        if not everything:
            _check_targets(model, targets)
        config = LoraConfig(
            r=rank,
            lora_alpha=alpha,
            target_modules=ALL_LINEAR if everything else list(targets),
            lora_dropout=0.0,
            bias="none",
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]):  # peft draws on the CPU, then moves
            torch.manual_seed(seed)
            try:
                wrapped = get_peft_model(model, config)
            except ValueError as error:
                raise ConfigError(
                    f"[trainer] lora_targets = {list(targets)}: peft cannot adapt these: {error}"
                ) from error
        made = cls(model, wrapped)
        for layer in made._layers().values():
            if isinstance(layer.get_base_layer(), torch.nn.Linear):
                use_merged_weight(layer)
        return made

    def off(self) -> AbstractContextManager[None]:
        """While this lasts the model is as it was before training."""
        context: AbstractContextManager[None] = self.peft.disable_adapter()
        return context

    def parameters(self) -> dict[str, Any]:
        """The merged weights under the names of the model's own parameters.

        Adapted ones are fresh tensors, W + scale · B A summed in float32 and rounded once to the
        dtype of W; the others are the live ones, by reference. The model is not touched.
        """
        return self._merged(self.model.named_parameters())

    def state(self) -> dict[str, Any]:
        """As `parameters`, with buffers and tied names: what a model folder holds."""
        return self._merged(self.model.state_dict().items())

    def _merged(self, named: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        from rti_hf.merged import merged_weight

        found = {
            name.replace(".base_layer.", "."): tensor.detach()
            for name, tensor in named
            if f".{self.peft.prefix}" not in name
        }
        for name, layer in self._layers().items():
            found[f"{name}.weight"] = merged_weight(layer)
        return found

    def _layers(self) -> dict[str, Any]:
        from peft.tuners.tuners_utils import BaseTunerLayer

        return {n: m for n, m in self.model.named_modules() if isinstance(m, BaseTunerLayer)}

    def save(self, folder: Path) -> None:
        """Write the adapters in peft's own format, for `PeftModel.from_pretrained`."""
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        from rti_hf.merged import ADAPTER

        folder.mkdir(parents=True, exist_ok=True)
        config = copy.copy(self.peft.peft_config[ADAPTER])
        config.inference_mode = True
        config.target_modules = sorted(config.target_modules)  # a set has an order of its own
        config.save_pretrained(folder)
        tensors: Mapping[str, Any] = get_peft_model_state_dict(
            self.peft, save_embedding_layers=False
        )
        plain = {name: t.detach().contiguous() for name, t in tensors.items()}
        save_file(plain, folder / WEIGHTS_FILE, metadata={"format": "pt"})


def _check_targets(model: Any, targets: Sequence[str]) -> None:
    """Each target is the name of a linear layer, or the end of one, and is not tied."""
    import torch

    layers = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    embedding = model.get_input_embeddings().weight
    ends = sorted({name.rpartition(".")[2] for name in layers})
    for target in targets:
        hit = [n for n in layers if n == target or n.endswith(f".{target}")]
        if not hit:
            raise ConfigError(
                f"[trainer] lora_targets: the model has no linear layer {target!r}."
                f"{did_you_mean(target, ends)} It has: {listed(ends)}; or name {ALL_LINEAR!r} "
                "alone for every linear layer but the head."
            )
        if any(layers[name].weight is embedding for name in hit):
            raise ConfigError(
                f"[trainer] lora_targets: {target!r} shares its weight with the embedding: an "
                "adapter on one of the two would untie them. Leave it out."
            )
