"""AdamW on float32 masters of a model's trainable parameters, and its state as plain tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field

from rti import RunError

STATE = ("step", "exp_avg", "exp_avg_sq")


@define
class Masters:
    """The trainable parameters of a model with float32 masters, and AdamW on these.

    A float32 parameter is its own master. The gradients of the others are summed in float32 as
    they come, micro-batch by micro-batch, and never stay in half precision: many small addends
    would be lost in bfloat16's eight bits.
    """

    model: Any
    beta1: float
    beta2: float
    weight_decay: float
    _masters: dict[str, Any] = field(init=False, factory=dict)
    _parameters: dict[str, Any] = field(init=False, factory=dict)
    _optimiser: Any = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        import torch

        for name, parameter in self.model.named_parameters():
            if not parameter.requires_grad:
                continue
            self._parameters[name] = parameter
            if parameter.dtype == torch.float32:
                self._masters[name] = parameter
                continue
            self._masters[name] = parameter.detach().float().clone()
            parameter.register_post_accumulate_grad_hook(_adder(self._masters[name]))
        self._optimiser = torch.optim.AdamW(
            self._masters.values(),
            betas=(self.beta1, self.beta2),
            weight_decay=self.weight_decay,
        )

    def zero_grad(self) -> None:
        """Drop all gradients, those of an update that an error broke off too."""
        self._optimiser.zero_grad()
        for parameter in self._parameters.values():
            parameter.grad = None

    def clip(self, max_norm: float) -> float:
        """Scale the gradients down to `max_norm`; return the norm that they had."""
        from torch.nn.utils import clip_grad_norm_

        return float(clip_grad_norm_(self._masters.values(), max_norm).item())

    def step(self, rate: float) -> None:
        """One AdamW update with step size `rate`; the parameters follow their masters."""
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.step()
        self._optimiser.zero_grad()
        self._publish()

    def _publish(self) -> None:
        import torch

        with torch.no_grad():
            for name, parameter in self._parameters.items():
                if self._masters[name] is not parameter:
                    parameter.copy_(self._masters[name])

    def tensors(self) -> dict[str, Any]:
        """Copies of masters and optimiser state, by name: `master/NAME`, `state/KEY/NAME`."""
        found = {}
        for name, master in self._masters.items():
            found[f"master/{name}"] = master.detach().clone().contiguous()
            for key, value in self._optimiser.state.get(master, {}).items():
                found[f"state/{key}/{name}"] = value.detach().clone().contiguous()
        return found

    def read(self, tensors: Mapping[str, Any], source: object) -> None:
        """Take over what `tensors` gave. Nothing is changed when it does not fit.

        Raises:
            RunError: when it belongs to other parameters, or is not whole; names `source`.
        """
        import torch

        shapes = {
            n.removeprefix("master/"): t.shape
            for n, t in tensors.items()
            if n.startswith("master/")
        }
        if shapes != {name: master.shape for name, master in self._masters.items()}:
            raise RunError(
                f"{source} was written for another model or another [trainer] lora_rank or "
                "lora_targets: its trained parameters have other names or shapes. Resume with the "
                "config that began the run."
            )
        begun = [name for name in shapes if f"state/step/{name}" in tensors]
        absent = [f"state/{k}/{n}" for n in begun for k in STATE if f"state/{k}/{n}" not in tensors]
        if absent:
            raise RunError(f"{source}: the trainer's state cannot be read: {absent[0]} is missing")
        self._optimiser.state.clear()  # of updates after the ones that are read back
        with torch.no_grad():
            for name, master in self._masters.items():
                master.copy_(tensors[f"master/{name}"])
        for name in begun:
            master = self._masters[name]
            self._optimiser.state[master] = {
                "step": tensors[f"state/step/{name}"],  # AdamW wants this one on the CPU
                "exp_avg": tensors[f"state/exp_avg/{name}"].to(master.device),
                "exp_avg_sq": tensors[f"state/exp_avg_sq/{name}"].to(master.device),
            }
        self._publish()


def _adder(master: Any) -> Callable[[Any], None]:
    def add(parameter: Any) -> None:
        gradient, parameter.grad = parameter.grad.float(), None
        master.grad = gradient if master.grad is None else master.grad.add_(gradient)

    return add
