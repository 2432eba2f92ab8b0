"""The embedded torch trainer: one process, any causal language model, engine-neutral batches."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attrs import define, field

from rti import (
    Batch,
    Context,
    Floats,
    Ids,
    NumericsError,
    Objective,
    RunError,
    above,
    anything,
    at_least,
    between,
    model_folder,
    not_empty,
    one_of,
    option,
)
from rti_hf.schedule import SCHEDULES, rate_factor
from rti_hf.state import ALPHA, UPDATES

if TYPE_CHECKING:
    from rti_hf.lora import Adapters
    from rti_hf.masters import Masters
    from rti_hf.reference import Reference
    from rti_hf.rows import Row


@define
class HfTrainer:
    """AdamW on a transformers model in this process, on all its weights or on LoRA adapters.

    Micro-batches follow the order of the batch, group by group, so that a later version can
    compute the prefix that a group shares once. The language-model head runs on tokens in the
    loss only. Half-precision weights are updated through float32 masters.
    """

    extra: ClassVar[str] = "hf"

    learning_rate: float = option(1e-6, "AdamW's step size.", above(0))
    warmup_steps: int = option(0, "Updates over which the step size rises linearly.", at_least(0))
    schedule: Literal["constant", "linear", "cosine"] = option(
        "constant", "How the step size falls after the warm-up.", one_of(*SCHEDULES)
    )
    schedule_steps: int = option(
        0, "Updates, warm-up included, at whose end the step size has fallen.", at_least(0)
    )
    schedule_min_ratio: float = option(
        0.0, "What the step size falls to, as a part of learning_rate.", between(0, 1)
    )
    beta1: float = option(0.9, "AdamW's decay of the mean gradient.", between(0, 1))
    beta2: float = option(0.95, "AdamW's decay of the mean squared gradient.", between(0, 1))
    weight_decay: float = option(0.0, "AdamW's decoupled weight decay.", at_least(0))
    max_grad_norm: float = option(1.0, "Gradients are scaled down to this norm.", above(0))
    epochs: int = option(1, "Updates on one batch; rollout logprobs stay as sampled.", at_least(1))
    micro_batch_tokens: int = option(
        8192, "Most tokens, padding included, in one forward and backward pass.", above(0)
    )
    gradient_checkpointing: bool = option(
        False, "Compute activations again in the backward pass to save memory.", anything
    )
    kl_coefficient: float = option(
        0.0, "Weight of the KL penalty against the initial model; 0 for none.", at_least(0)
    )
    lora_rank: int = option(0, "Rank of LoRA adapters; 0 trains all weights.", at_least(0))
    lora_alpha: float = option(32.0, "LoRA's scale is lora_alpha / lora_rank.", above(0))
    lora_targets: tuple[str, ...] = option(
        ("all-linear",),
        'Layers with adapters, by the end of their names; ["all-linear"] for all but the head.',
        not_empty,
    )
    _model: Any = field(init=False, default=None, repr=False)
    _tokenizer_folder: Any = field(init=False, default=None, repr=False)
    _objective: Any = field(init=False, default=None, repr=False)
    _masters: Masters = field(init=False, default=None, repr=False)
    _adapters: Adapters | None = field(init=False, default=None, repr=False)
    _reference: Reference | None = field(init=False, default=None, repr=False)
    _marks: dict[str, Any] = field(init=False, factory=dict, repr=False)
    _updates: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        if self.schedule != "constant" and self.schedule_steps <= self.warmup_steps:
            raise ValueError(
                f"schedule = {self.schedule!r} needs schedule_steps above warmup_steps = "
                f"{self.warmup_steps}: it is {self.schedule_steps}. Set it to the run's updates: "
                "[run] steps times epochs."
            )

    def bind(self, context: Context) -> None:
        """Load the model, put adapters into it, and set up the optimiser.

        Raises:
            ConfigError: for a model or device that cannot be used, or LoRA targets it lacks.
            PluginError: when LoRA is asked for without `peft`.
        """
        from rti_hf.forward import check_head, memory_explained
        from rti_hf.lora import Adapters
        from rti_hf.masters import Masters
        from rti_hf.models import load_model, without_dropout
        from rti_hf.reference import Reference, marks

        at = context.model
        self._objective = context.objective
        self._tokenizer_folder = model_folder(at.path)
        with memory_explained():
            model = self._model = load_model(at.path, at.dtype, at.device, at.threads)
            check_head(model)
            if self.lora_rank or self.kl_coefficient:
                self._marks = marks(model)
            if self.lora_rank:
                self._adapters = Adapters.attach(
                    model, self.lora_rank, self.lora_alpha, self.lora_targets, context.seed
                )
            if self.kl_coefficient:
                self._reference = Reference.of(model, self._adapters)
            if self.gradient_checkpointing:
                model.gradient_checkpointing_enable({"use_reentrant": False})
                model.train()  # transformers checkpoints in training mode only
                without_dropout(model)  # it would make π_θ differ from π_roll at equal weights
            self._masters = Masters(model, self.beta1, self.beta2, self.weight_decay)

    def supports(self, objective: Objective) -> bool:
        """Objectives that need nothing, or what a batch's `aux` brings, or π_old."""
        from rti_hf.rows import KNOWN

        return set(objective.needs) <= KNOWN

    def step(self, batch: Batch) -> Mapping[str, float]:
        """`epochs` updates on the batch.

        Raises:
            RunError: for an empty batch, or when the device runs out of memory.
            NumericsError: when the gradient is not finite; the weights are left as they were.
        """
        from rti_hf.forward import memory_explained
        from rti_hf.rows import OLD, rows_of, with_old

        if not batch.samples:
            raise RunError("the trainer was given an empty batch: there is nothing to learn from")
        began, metrics = time.perf_counter(), dict[str, float]()
        with memory_explained():
            rows = rows_of(batch, self._objective)
            if OLD in self._objective.needs:
                rows = with_old(rows, self._model, self.micro_batch_tokens)
            for _ in range(self.epochs):
                metrics = self._update(rows)
        return {**metrics, "seconds_update": time.perf_counter() - began}

    def _update(self, rows: Sequence[Row]) -> dict[str, float]:
        import torch

        from rti_hf.forward import chosen, cut

        self._masters.zero_grad()  # of an update that an error broke off
        total, kl, tokens, log_ratio, compared, farthest = 0.0, 0.0, 0, 0.0, 0, 0.0
        for part in cut([len(row.sample.token_ids) for row in rows], self.micro_batch_tokens):
            own = [rows[i] for i in part]
            losses_N, kl_N, logprobs_N, behaviour_N = self._losses(own)
            loss = losses_N.sum()
            loss.backward()
            total += loss.item()
            with torch.no_grad():
                kl += float(kl_N.sum())
                tokens += logprobs_N.numel()
                known_N = chosen(
                    [row.sampled_by_policy() for row in own],
                    [row.sample.loss_mask for row in own],
                    logprobs_N.device,
                )
                difference_N = (logprobs_N - behaviour_N).abs() * known_N
                compared += int(known_N.sum())
                log_ratio += difference_N.sum().item()
                farthest = max(farthest, difference_N.max().item())
        norm = self._masters.clip(self.max_grad_norm)
        if not norm < float("inf"):
            self._masters.zero_grad()
            raise NumericsError(f"[trainer] the gradient's norm is {norm}: no update was made")
        rate = self.learning_rate * rate_factor(
            self._updates,
            self.schedule,
            self.warmup_steps,
            self.schedule_steps,
            self.schedule_min_ratio,
        )
        self._masters.step(rate)
        self._updates += 1
        return {
            "loss": total,
            "grad_norm": norm,
            "learning_rate": rate,
            "log_ratio_mean": log_ratio / max(1, compared),
            "log_ratio_max": farthest,
            **({"kl": kl / tokens} if self.kl_coefficient else {}),
        }

    def _losses(self, rows: Sequence[Row]) -> tuple[Any, Any, Any, Any]:
        """Of the N trained tokens: scaled losses, KL estimates, logprobs of π_θ and of π_roll."""
        import torch

        from rti.ops import kl_estimate
        from rti_hf.forward import chosen, chosen_logprobs

        ids_B = [row.sample.token_ids for row in rows]
        masks_B = [row.sample.loss_mask for row in rows]
        reference_N = None
        if self._reference is not None:  # first, while no graph takes up memory
            with self._reference.model() as model:
                reference_N = chosen_logprobs(model, ids_B, masks_B)
        logprobs_N = chosen_logprobs(self._model, ids_B, masks_B)
        device = logprobs_N.device
        behaviour_N = chosen([row.sample.rollout_logprobs for row in rows], masks_B, device)
        advantages_N = chosen([row.sample.advantages for row in rows], masks_B, device)
        scales_N = chosen([row.scales() for row in rows], masks_B, device)
        extras = {
            name: chosen([row.extras[name] for row in rows], masks_B, device)
            for name in rows[0].extras
        }
        losses_N = self._objective.token_loss(logprobs_N, behaviour_N, advantages_N, **extras)
        kl_N = torch.zeros(())
        if reference_N is not None:
            kl_N = kl_estimate(logprobs_N, reference_N)
            losses_N = losses_N + self.kl_coefficient * kl_N
        return losses_N * scales_N, kl_N, logprobs_N, behaviour_N

    def score(self, prompts: Sequence[Ids], completions: Sequence[Ids]) -> list[Floats]:
        """Logprobs in nats, at temperature 1, of each completion's tokens after its prompt.

        Under the weights that are trained, with no prefix kept from before: every number comes
        from one whole forward pass, in micro-batches of `micro_batch_tokens`.

        Raises:
            NumericsError: for a prompt without a token.
            RunError: when the device runs out of memory.
        """
        from rti_hf.forward import completion_logprobs, memory_explained

        with memory_explained():
            return completion_logprobs(self._model, prompts, completions, self.micro_batch_tokens)

    def weights(self) -> Mapping[str, Any]:
        """The weights by the model's own parameter names: the live ones, adapters merged in.

        Nothing is copied but the layers that have adapters.
        """
        if self._adapters is not None:
            return self._adapters.parameters()
        return {name: p.detach() for name, p in self._model.named_parameters()}

    def save(self, folder: Path) -> None:
        """Write a plain Hugging Face folder `model/`, and the optimiser with the masters.

        With LoRA the adapters are merged in `model/`, and apart in `adapter/` in peft's format.
        """
        import torch

        from rti_hf.state import write_model, write_tensors

        write_model(folder, self._model, self._adapters, self._tokenizer_folder)
        tensors = {
            UPDATES: torch.tensor(self._updates),
            **({ALPHA: torch.tensor(self.lora_alpha).double()} if self._adapters else {}),
            **self._marks,
            **self._masters.tensors(),
        }
        write_tensors(folder, tensors)

    def restore(self, folder: Path) -> None:
        """Read back weights and optimiser.

        Raises:
            RunError: when the files are missing, or belong to another model or other adapters.
        """
        from rti_hf.reference import check_marks
        from rti_hf.state import read_tensors

        tensors = read_tensors(folder)
        alpha = float(tensors.get(ALPHA, self.lora_alpha))
        if alpha != self.lora_alpha:
            raise RunError(
                f"{folder} was written with [trainer] lora_alpha = {alpha:g}; it is "
                f"{self.lora_alpha:g} now. Resume with the config that began the run."
            )
        check_marks(self._marks, tensors, folder)
        self._masters.read(tensors, folder)
        self._updates = int(tensors[UPDATES])
