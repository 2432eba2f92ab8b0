"""The embedded torch trainer: one process, any causal language model, engine-neutral batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from attrs import define, field

from rti import (
    Batch,
    Context,
    NumericsError,
    Objective,
    RunError,
    Sample,
    above,
    anything,
    at_least,
    between,
    model_folder,
    option,
)

OPTIMISER_FILE = "optimiser.safetensors"
MODEL_FOLDER = "model"


@define
class HfTrainer:
    """AdamW on a transformers model in this process.

    Micro-batches follow the order of the batch, group by group, so that a later version can
    compute the prefix that a group shares once. The language-model head runs on tokens in the
    loss only. Half-precision weights are updated through float32 masters.
    """

    extra: ClassVar[str] = "hf"

    learning_rate: float = option(1e-6, "AdamW's step size.", above(0))
    warmup_steps: int = option(0, "Updates over which the step size rises linearly.", at_least(0))
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
    _model: Any = field(init=False, default=None, repr=False)
    _tokenizer_folder: Any = field(init=False, default=None, repr=False)
    _objective: Any = field(init=False, default=None, repr=False)
    _masters: dict[str, Any] = field(init=False, factory=dict, repr=False)
    _optimiser: Any = field(init=False, default=None, repr=False)
    _updates: int = field(init=False, default=0)

    def bind(self, context: Context) -> None:
        """Load the model and set up the optimiser."""
        import torch

        from rti_hf.models import load_model

        at = context.model
        self._objective = context.objective
        self._tokenizer_folder = model_folder(at.path)
        self._model = load_model(at.path, at.dtype, at.device, at.threads)
        if self.gradient_checkpointing:
            self._model.gradient_checkpointing_enable()
            self._model.train()  # transformers checkpoints in training mode only
            for module in self._model.modules():
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.0  # dropout would make π_θ differ from π_roll at equal weights
        for name, parameter in self._model.named_parameters():
            full = parameter.dtype == torch.float32
            self._masters[name] = parameter if full else parameter.detach().float().clone()
        self._optimiser = torch.optim.AdamW(
            self._masters.values(),
            lr=self.learning_rate,
            betas=(self.beta1, self.beta2),
            weight_decay=self.weight_decay,
        )

    def supports(self, objective: Objective) -> bool:
        """Objectives that need nothing beyond the batch's own logprobs."""
        return not objective.needs

    def step(self, batch: Batch) -> Mapping[str, float]:
        """`epochs` updates on the batch.

        Raises:
            RunError: for an empty batch.
            NumericsError: when the gradient is not finite; the weights are left as they were.
        """
        if not batch.samples:
            raise RunError("the trainer was given an empty batch: there is nothing to learn from")
        began, metrics = time.perf_counter(), dict[str, float]()
        for _ in range(self.epochs):
            metrics = self._update(batch.samples)
        return {**metrics, "seconds_update": time.perf_counter() - began}

    def _update(self, samples: Sequence[Sample]) -> dict[str, float]:
        import torch

        from rti.ops import token_scales

        scales_S = token_scales(
            [sum(s.loss_mask) for s in samples],
            [s.rollout for s in samples],
            self._objective.aggregate,
            self._objective.constant_length,
        ).tolist()
        self._model.zero_grad()  # of an update that an error broke off
        total, tokens, log_ratio, farthest = 0.0, 0, 0.0, 0.0
        for rows, scales in self._micro_batches(samples, scales_S):
            logprobs_N, behaviour_N, advantages_N, scales_N = self._forward(rows, scales)
            losses_N = self._objective.token_loss(logprobs_N, behaviour_N, advantages_N)
            loss = (losses_N * scales_N).sum()
            loss.backward()
            total += loss.item()
            with torch.no_grad():
                difference_N = (logprobs_N - behaviour_N).abs()
                tokens += difference_N.numel()
                log_ratio += difference_N.sum().item()
                farthest = max(farthest, difference_N.max().item())
        for name, parameter in self._model.named_parameters():
            master = self._masters[name]
            if master is not parameter and parameter.grad is not None:
                master.grad, parameter.grad = parameter.grad.float(), None
        norm = torch.nn.utils.clip_grad_norm_(self._masters.values(), self.max_grad_norm).item()
        if not norm < float("inf"):
            self._optimiser.zero_grad()
            raise NumericsError(f"[trainer] the gradient's norm is {norm}: no update was made")
        rate = self.learning_rate * min(1.0, (self._updates + 1) / max(1, self.warmup_steps))
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.step()
        self._optimiser.zero_grad()
        self._updates += 1
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                if self._masters[name] is not parameter:
                    parameter.copy_(self._masters[name])
        return {
            "loss": total,
            "grad_norm": norm,
            "learning_rate": rate,
            "log_ratio_mean": log_ratio / tokens,
            "log_ratio_max": farthest,
        }

    def _micro_batches(
        self, samples: Sequence[Sample], scales_S: Sequence[float]
    ) -> Iterator[tuple[list[Sample], list[float]]]:
        """Consecutive samples up to the token budget; those without a trained token are skipped."""
        rows: list[Sample] = []
        scales: list[float] = []
        longest = 0
        for sample, scale in zip(samples, scales_S, strict=True):
            if not any(sample.loss_mask):
                continue
            longest = max(longest, len(sample.token_ids))
            if rows and longest * (len(rows) + 1) > self.micro_batch_tokens:
                yield rows, scales
                rows, scales, longest = [], [], len(sample.token_ids)
            rows.append(sample)
            scales.append(scale)
        if rows:
            yield rows, scales

    def _forward(self, rows: list[Sample], scales: list[float]) -> tuple[Any, Any, Any, Any]:
        """Logprobs under π_θ of the N trained tokens, and what the loss needs beside them.

        Padding is on the right, where a causal model never looks: no mask is needed.
        """
        import torch

        device = self._model.device
        longest = max(len(s.token_ids) for s in rows)
        ids_B_T = torch.zeros(len(rows), longest, dtype=torch.long)
        mask_B_T = torch.zeros(len(rows), longest, dtype=torch.bool)
        for b, sample in enumerate(rows):
            ids_B_T[b, : len(sample.token_ids)] = torch.tensor(sample.token_ids)
            mask_B_T[b, : len(sample.token_ids)] = torch.tensor(sample.loss_mask)
        if mask_B_T[:, 0].any():
            raise NumericsError("a sample trains on its first token, which no prompt precedes")
        hidden_B_T_D = self._model.base_model(
            input_ids=ids_B_T[:, :-1].to(device), use_cache=False
        ).last_hidden_state
        learn_B_T = mask_B_T[:, 1:]
        logits_N_V = self._model.get_output_embeddings()(hidden_B_T_D[learn_B_T.to(device)])
        targets_N = ids_B_T[:, 1:][learn_B_T].to(device)
        logprobs_N = logits_N_V.float().log_softmax(-1).gather(1, targets_N[:, None])[:, 0]

        def flat(name: str) -> Any:
            kept = [
                v for s in rows for v, m in zip(getattr(s, name), s.loss_mask, strict=True) if m
            ]
            return torch.tensor(kept, dtype=torch.float32, device=device)

        per_token = [x for s, x in zip(rows, scales, strict=True) for _ in range(sum(s.loss_mask))]
        scales_N = torch.tensor(per_token, dtype=torch.float32, device=device)
        return logprobs_N, flat("rollout_logprobs"), flat("advantages"), scales_N

    def weights(self) -> Mapping[str, Any]:
        """The live parameters, by name."""
        return {name: p.detach() for name, p in self._model.named_parameters()}

    def save(self, folder: Path) -> None:
        """Write a plain Hugging Face folder `model/`, and the optimiser with the masters."""
        import torch
        from safetensors.torch import save_file
        from transformers import AutoTokenizer

        self._model.save_pretrained(folder / MODEL_FOLDER)
        tokenizer = AutoTokenizer.from_pretrained(self._tokenizer_folder, local_files_only=True)
        tokenizer.save_pretrained(folder / MODEL_FOLDER)
        tensors: dict[str, Any] = {"updates": torch.tensor(self._updates)}
        for name, master in self._masters.items():
            tensors[f"master/{name}"] = master.detach().clone().contiguous()
            for key, value in self._optimiser.state.get(master, {}).items():
                tensors[f"state/{key}/{name}"] = value.detach().clone().contiguous()
        save_file(tensors, folder / OPTIMISER_FILE)

    def restore(self, folder: Path) -> None:
        """Read back weights and optimiser.

        Raises:
            RunError: when the files are missing or belong to another model.
        """
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            tensors = load_file(folder / OPTIMISER_FILE)
        except (OSError, SafetensorError) as error:
            raise RunError(f"{folder}: the trainer's state cannot be read: {error}") from error
        shapes = {
            n.removeprefix("master/"): t.shape
            for n, t in tensors.items()
            if n.startswith("master/")
        }
        if shapes != {name: master.shape for name, master in self._masters.items()}:
            raise RunError(
                f"{folder} was written for another model: its parameters have other names or "
                "shapes than those of [model] path. Resume with the config that began the run."
            )
        self._optimiser.state.clear()  # of updates after the ones that are read back
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                master = self._masters[name]
                master.copy_(tensors[f"master/{name}"])
                if master is not parameter:
                    parameter.copy_(master)
                if f"state/step/{name}" in tensors:
                    self._optimiser.state[master] = {
                        "step": tensors[f"state/step/{name}"],  # AdamW wants this one on the CPU
                        "exp_avg": tensors[f"state/exp_avg/{name}"].to(master.device),
                        "exp_avg_sq": tensors[f"state/exp_avg_sq/{name}"].to(master.device),
                    }
        self._updates = int(tensors["updates"])
