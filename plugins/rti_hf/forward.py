"""Logprobs of chosen tokens under a model, in micro-batches of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rti import ConfigError, Floats, Ids, NumericsError, RunError


def cut(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Consecutive rows, by number, that take at most `budget` tokens, padding included.

    A row longer than the budget comes alone.
    """
    rows: list[int] = []
    longest = 0
    for row, length in enumerate(lengths):
        longest = max(longest, length)
        if rows and longest * (len(rows) + 1) > budget:
            yield rows
            rows, longest = [], length
        rows.append(row)
    if rows:
        yield rows


def chosen_logprobs(
    model: Any, token_ids_B: Sequence[Ids], masks_B: Sequence[Sequence[bool]]
) -> Any:
    """Logprobs in nats, at temperature 1, of the N tokens that the masks choose, row by row.

    Padding is on the right, where a causal model never looks: no mask is needed. The head runs
    on what predicts a chosen token only. The result is float32.

    Raises:
        NumericsError: when the first token of a row is chosen, which nothing precedes.
    """
    import torch

    longest = max(len(ids) for ids in token_ids_B)
    ids_B_T = torch.zeros(len(token_ids_B), longest, dtype=torch.long)
    mask_B_T = torch.zeros(len(token_ids_B), longest, dtype=torch.bool)
    for b, (ids, mask) in enumerate(zip(token_ids_B, masks_B, strict=True)):
        ids_B_T[b, : len(ids)] = torch.tensor(ids)
        mask_B_T[b, : len(ids)] = torch.tensor(mask)
    if mask_B_T[:, 0].any():
        raise NumericsError("a sample trains on its first token, which no prompt precedes")
    device = model.device
    hidden_B_T_D = model.base_model(
        input_ids=ids_B_T[:, :-1].to(device), use_cache=False
    ).last_hidden_state
    chosen_B_T = mask_B_T[:, 1:]
    logits_N_V = model.get_output_embeddings()(hidden_B_T_D[chosen_B_T.to(device)])
    targets_N = ids_B_T[:, 1:][chosen_B_T].to(device)
    return logits_N_V.float().log_softmax(-1).gather(1, targets_N[:, None])[:, 0]


def chosen(values_B: Sequence[Sequence[float]], masks_B: Sequence[Sequence[bool]], at: Any) -> Any:
    """The N values that the masks choose, row by row: a float32 tensor on device `at`."""
    import torch

    kept = [
        value
        for values, mask in zip(values_B, masks_B, strict=True)
        for value, m in zip(values, mask, strict=True)
        if m
    ]
    return torch.tensor(kept, dtype=torch.float32, device=at)


def completion_logprobs(
    model: Any, prompts: Sequence[Ids], completions: Sequence[Ids], budget: int
) -> list[Floats]:
    """Logprobs in nats, at temperature 1, of each completion's tokens after its prompt.

    Each from one whole forward pass, without gradients, in micro-batches of `budget` tokens.

    Raises:
        NumericsError: for a prompt without a token.
    """
    import torch

    pairs = list(zip(prompts, completions, strict=True))
    if not all(prompts):
        raise NumericsError("score: a prompt is empty, and nothing precedes its completion")
    # Rows of like length waste little on padding; a completion without a token asks for nothing.
    order = sorted(
        (i for i, (_, completion) in enumerate(pairs) if completion),
        key=lambda i: len(pairs[i][0]) + len(pairs[i][1]),
    )
    rows = [pairs[i] for i in order]
    found: list[Floats] = [()] * len(pairs)
    with torch.no_grad():
        for part in cut([len(p) + len(c) for p, c in rows], budget):
            logprobs_N = chosen_logprobs(
                model,
                [(*rows[i][0], *rows[i][1]) for i in part],
                [[False] * len(rows[i][0]) + [True] * len(rows[i][1]) for i in part],
            )
            lengths = [len(rows[i][1]) for i in part]
            for i, own_T in zip(part, logprobs_N.split(lengths), strict=True):
                found[order[i]] = tuple(own_T.tolist())
    return found


def check_head(model: Any) -> None:
    """Refuse a model that does more than a linear head on its last hidden states.

    Some architectures scale or cap their logits after the head; logprobs taken at the head, as
    here and in the policy, would then be of another distribution.

    Raises:
        ConfigError: names the architecture.
    """
    import torch

    vocabulary = model.get_input_embeddings().weight.shape[0]
    ids_B_T = torch.arange(8, device=model.device)[None] % vocabulary
    with torch.no_grad():
        whole = model(input_ids=ids_B_T, use_cache=False).logits.float()
        hidden = model.base_model(input_ids=ids_B_T, use_cache=False).last_hidden_state
        ours = model.get_output_embeddings()(hidden).float()
    if not torch.allclose(ours, whole, rtol=1e-3, atol=1e-3 * whole.abs().max().item()):
        raise ConfigError(
            f"[model] path: {type(model).__name__} changes its logits after the head (scaling or "
            "soft-capping), which the hf policy and trainer do not follow. Use a model with a "
            "plain linear head, such as Llama, Qwen2 or Qwen3."
        )


@contextmanager
def memory_explained() -> Iterator[None]:
    """Around work on the device: an out-of-memory error says what to change.

    Raises:
        RunError: in place of torch's own error.
    """
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        told = ". ".join(str(error).split(". ")[:2])  # what happened, and how much was asked for
        raise RunError(
            f"[trainer] the device has run out of memory: {told}. Lower [trainer] "
            "micro_batch_tokens, set gradient_checkpointing = true, or train fewer weights: "
            "lora_rank = 16."
        ) from error
