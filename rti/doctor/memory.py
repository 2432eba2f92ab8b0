"""How much memory a run takes, from the sizes of its model and its options.

With P parameters of b bytes each (2 in bfloat16, 4 in float32), A of them trained (all P, or
those of LoRA adapters, which are float32), L layers of width h with feed-forward width f and keys
of width d_kv, a vocabulary of V, and n tokens in a micro-batch of which m are in the loss:

    weights            P·b, in the trainer and again in the policy
    teacher            its own P·b all the time, where the objective learns from [teacher] weights
    reference          P·b, with a KL penalty and without LoRA
    optimiser          A·8 (Adam's two moments) + A·4 (float32 masters, where b < 4)
    gradients          A·4
    merged weights     P·b, with LoRA, while they are handed to the policy
    keys and values    2·L·d_kv·b a token (of the policy, for rollouts of C tokens)
    activations        n·b·(8h + 3·d_kv + 4f) a layer; with gradient checkpointing n·b·h a layer,
                       and one layer whole
    logits             m·V·(b + 12), in bfloat16; m·V·12 in float32: the logits, their
                       log-softmax, and the gradient of it

    during rollouts    both weights + teacher + reference + optimiser + keys and values
    during an update   the trainer's weights + teacher + reference + optimiser, and beside them the
                       greater of (gradients + activations + logits, + the policy's weights where it
                       cannot sleep) and (the policy's weights + merged weights)

n is `micro_batch_tokens`, or one rollout where that is longer; m is what the agent says in it:
`max_turns · max_new_tokens` a rollout. Options that are read by name, where a trainer has them:
`micro_batch_tokens`, `gradient_checkpointing`, `lora_rank`, `lora_targets`, `kl_coefficient`; where
a policy has it: `sleep_mode`. What torch itself takes (some hundred megabytes) and fragmentation
come on top: it answers "tens of gigabytes or hundreds?", not the question for the last one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from attrs import frozen

from rti.config import Config
from rti.doctor.finding import Finding, attempt
from rti.doctor.free import free_bytes
from rti.doctor.headers import Shape, read_shape
from rti.doctor.parts import Parts
from rti.errors import ConfigError
from rti.teacher import needed, teacher_folder

GIB = 2**30
TIGHT = 0.9
"""Above this share of what is free, fragmentation may use up the rest."""


@frozen
class Estimate:
    """Bytes, by what they are for."""

    weights: int
    reference: int
    optimiser: int
    gradients: int
    merged: int
    kv_token: int
    rollouts: int
    rollout_tokens: int
    activations: int
    logits: int
    sleeps: bool
    teacher: int = 0

    @property
    def kept(self) -> int:
        """What lies there all the time, without the policy. A teacher never sleeps."""
        return self.weights + self.reference + self.optimiser + self.teacher

    @property
    def rollout(self) -> int:
        """While rollouts are sampled, without keys and values."""
        return self.kept + self.weights

    @property
    def kv(self) -> int:
        """Keys and values of all rollouts of a step, each at its full length."""
        return self.kv_token * self.rollout_tokens * self.rollouts

    @property
    def update(self) -> int:
        """At most, while the weights are updated and handed over."""
        policy = 0 if self.sleeps else self.weights
        working = policy + self.gradients + self.activations + self.logits
        return self.kept + max(working, self.weights + self.merged)


def estimate(
    shape: Shape,
    config: Config,
    trainer: Any,
    sleeps: bool,
    context: int,
    teacher: Shape | None = None,
) -> Estimate:
    """By the formulas above, for rollouts of `context` tokens."""
    b = 2 if config.model.dtype == "bfloat16" else 4
    rank = int(getattr(trainer, "lora_rank", 0))
    targets = tuple(getattr(trainer, "lora_targets", ()))
    trained = _adapters(shape, rank, targets) if rank else shape.parameters
    masters = 4 if b < 4 and not rank else 0
    at = config.rollout
    budget = int(getattr(trainer, "micro_batch_tokens", context))
    n = max(budget, context)
    said = min(context, at.max_turns * at.max_new_tokens)
    m = min(n, max(1, n // context) * said)
    layer = n * b * (8 * shape.hidden + 3 * shape.kv_width + 4 * shape.inner)
    if getattr(trainer, "gradient_checkpointing", False):
        activations = n * b * shape.hidden * shape.layers + layer
    else:
        activations = layer * shape.layers
    weights = shape.parameters * b
    return Estimate(
        weights=weights,
        reference=weights if getattr(trainer, "kl_coefficient", 0) and not rank else 0,
        optimiser=trained * (8 + masters) + (trained * 4 if rank else 0),
        gradients=trained * 4,
        merged=weights if rank else 0,
        kv_token=2 * shape.layers * shape.kv_width * b,
        rollouts=at.group_size * at.tasks_per_step,
        rollout_tokens=context,
        activations=activations,
        logits=m * shape.vocabulary * (12 + (b if b < 4 else 0)),
        sleeps=sleeps,
        teacher=teacher.parameters * b if teacher else 0,
    )


def _adapters(shape: Shape, rank: int, targets: tuple[str, ...]) -> int:
    """Numbers in LoRA's A and B: rank · (rows + columns) a matrix that gets them."""
    total = 0
    for name, size in shape.tensors.items():
        layer = name.removesuffix(".weight")
        if len(size) != 2 or ("layers." not in name and "all-linear" in targets):
            continue
        if "all-linear" in targets or any(layer == t or layer.endswith(f".{t}") for t in targets):
            total += rank * sum(size)
    return total


async def look(parts: Parts) -> AsyncIterator[Finding]:
    """The estimate for this run, against what is free."""
    if parts.folder is None:
        yield Finding("note", "run", "not estimated: the model's folder is not on this machine")
        return
    for finding in await attempt("run", _run, parts):
        yield finding


def _run(parts: Parts) -> Iterator[Finding]:
    assert parts.folder is not None
    config = parts.config
    shape = read_shape(parts.folder)
    context = _context(parts)
    policy = parts["policy"]
    sleeps = hasattr(policy, "sleep") and bool(getattr(policy, "sleep_mode", True))
    cost = estimate(shape, config, parts["trainer"], sleeps, context, _teacher(parts))
    device = config.model.device
    free = None if parts.offline and device != "cpu" else free_bytes(device)
    of = (
        f"of {_gb(free)} free on {device}"
        if free is not None
        else f"on {device}, whose memory was not looked at"
    )
    yield Finding(
        _level(cost.update, free),
        "update",
        f"about {_gb(cost.update)} {of}" + _way(cost.update, free),
        (
            f"trainer: weights {_gb(cost.weights)} ({shape.parameters / 1e6:.1f} M parameters, "
            f"{config.model.dtype}), optimiser {_gb(cost.optimiser)}, gradients "
            f"{_gb(cost.gradients)}"
            + (f", reference {_gb(cost.reference)}" * bool(cost.reference)),
            f"micro-batch: activations {_gb(cost.activations)}, logits {_gb(cost.logits)}"
            + (f"; or merged weights {_gb(cost.merged)}" * bool(cost.merged)),
            "policy: weights asleep meanwhile"
            if sleeps
            else f"policy: weights {_gb(cost.weights)}",
            *_of_the_teacher(parts, cost),
        ),
    )
    one = cost.kv_token * context
    least = cost.rollout + one
    text = f"about {_gb(cost.rollout)} and keys and values, {of}" + _way(least, free)
    level = _level(least, free)
    every = cost.rollout + cost.kv
    if level == "ok" and free is not None and every > free:
        level = "note"
        text += (
            ". Those of all rollouts at once do not fit at full length: a policy with a bounded "
            "cache takes them in portions"
        )
    yield Finding(
        level,
        "rollouts",
        text,
        (
            f"trainer: {_gb(cost.kept - cost.teacher)}; policy: weights {_gb(cost.weights)}",
            *_of_the_teacher(parts, cost),
            f"keys and values: {_gb(one)} a rollout of {context} tokens, {_gb(cost.kv)} for "
            f"{cost.rollouts} of them",
        ),
    )


def _teacher(parts: Parts) -> Shape | None:
    """The local teacher that the run loads, if its folder is there."""
    weights, objective = parts.config.teacher.weights, parts["objective"]
    if not weights or objective is None or not needed(objective):
        return None
    try:
        return read_shape(teacher_folder(weights))
    except ConfigError:  # the config's own check says so
        return None


def _of_the_teacher(parts: Parts, cost: Estimate) -> tuple[str, ...]:
    if cost.teacher:
        return (f"teacher: weights {_gb(cost.teacher)}",)
    objective = parts["objective"]
    needs = objective is not None and needed(objective)
    return ("teacher: not counted, its folder is not known here",) if needs else ()


def loads(parts: Parts) -> str:
    """Why the model should not be loaded twice here; "" where it fits or nothing is known."""
    if parts.folder is None:
        return ""
    device = parts.config.model.device
    free = free_bytes(device)
    cost = estimate(read_shape(parts.folder), parts.config, parts["trainer"], True, _context(parts))
    if free is None or cost.rollout <= free:
        return ""
    return (
        f"policy and trainer take {_gb(cost.rollout)} before their first token, of {_gb(free)} "
        f"free on {device}: they were not loaded"
    )


def _context(parts: Parts) -> int:
    """Tokens of a long rollout: the config's limit, or else what its turns can add up to."""
    at = parts.config.rollout
    if at.max_context:
        return at.max_context
    grown = parts.first_prompt + at.max_turns * at.max_new_tokens
    return max(grown, parts.episode.tokens if parts.episode else 0)


def _level(needed: int, free: int | None) -> Any:
    return "warning" if free is not None and needed > TIGHT * free else "ok"


def _way(needed: int, free: int | None) -> str:
    if _level(needed, free) == "ok":
        return ""
    return (
        ": it may not fit. Lower [trainer] micro_batch_tokens or [rollout] max_context, recompute "
        "activations (gradient_checkpointing), train adapters alone (lora_rank), or use bfloat16"
    )


def _gb(size: int | None) -> str:
    size = size or 0
    for unit, name in ((GIB, "GB"), (2**20, "MB")):
        if size >= unit:
            return f"{size / unit:.{1 if size < 100 * unit else 0}f} {name}"
    return f"{size / 1024:.0f} kB"
