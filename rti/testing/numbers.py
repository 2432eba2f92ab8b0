"""Checks of the plug-ins that judge by numbers: gates, weighters, triggers, objectives."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import evolve
from hypothesis import strategies as st

from rti.interfaces import Gate, Objective, Trigger, Weighter
from rti.testing._contract import for_all, is_a, pure, that
from rti.testing.strategies import groups, interventions, logprobs
from rti.types import Decision, Floats, Group, Intervention, Task


def check_gate(gate: Gate, *, examples: int = 50) -> None:
    """The contract of a Gate: a Decision with true numbers, the same for the same intervention.

    Raises:
        AssertionError: says what broke.
    """

    def check(intervention: Intervention) -> None:
        decision = pure("admit", gate.admit, intervention)
        is_a(decision, Decision, "admit")
        is_a(decision.admitted, bool, "Decision.admitted")
        for name in ("value", "threshold"):
            number = getattr(decision, name)
            that(
                isinstance(number, (int, float)) and not math.isnan(number),
                f"Decision.{name} must be a number (infinite if need be), not {number!r}",
            )

    for_all(interventions(), check, examples)


def check_weighter(weighter: Weighter, *, examples: int = 50) -> None:
    """The contract of a Weighter: T finite, positive weights, also without a corrector prompt.

    Raises:
        AssertionError: says what broke.
    """

    def check(intervention: Intervention) -> None:
        weights = pure("weigh", weighter.weigh, intervention)
        is_a(weights, tuple, "weigh")
        length = len(intervention.rollout_logprobs or ())
        that(
            len(weights) == length,
            f"weigh gave {len(weights)} weights for a correction of {length} tokens",
        )
        for position, weight in enumerate(weights):
            that(
                isinstance(weight, (int, float)) and math.isfinite(weight) and weight > 0,
                f"weight {position} is {weight!r}: must be finite and positive",
            )

    for_all(interventions(), check, examples)


def check_trigger(trigger: Trigger, *, examples: int = 50) -> None:
    """The contract of a Trigger: a bool that does not depend on the order of the rollouts.

    A group that infrastructure faults emptied has nothing to repair and must not fire. The same
    holds of `resample`, where it has one; `rounds` then says how often it may be asked.

    Raises:
        AssertionError: says what broke.
    """
    asked = {"fires": trigger.fires}
    if hasattr(trigger, "resample"):
        asked["resample"] = trigger.resample
        rounds = getattr(trigger, "rounds", None)
        that(type(rounds) is int and rounds >= 1, f"rounds is {rounds!r}: must be at least 1")

    def check(drawn: tuple[Group, Group]) -> None:
        group, reordered = drawn
        for name, method in asked.items():
            answer = pure(name, method, group)
            is_a(answer, bool, name)
            that(
                method(reordered) == answer,
                f"{name} depends on the order of the rollouts in the group",
            )

    def with_reordered(group: Group) -> st.SearchStrategy[tuple[Group, Group]]:
        orders = st.permutations(range(len(group.rollouts)))
        return orders.map(lambda order: (group, _reordered(group, order)))

    for_all(groups().flatmap(with_reordered), check, examples)
    emptied = Group(Task("emptied"), (), faults=8)
    for name, method in asked.items():
        that(
            method(emptied) is False,
            f"{name} on a group without rollouts: infrastructure faults are no reason for it",
        )


def check_objective(objective: Objective, *, examples: int = 50) -> None:
    """The contract of an Objective.

    Its advantages are finite, one a rollout, follow the rollouts when these are reordered, and
    are 0 in a group of equal outcomes. Its token loss is a pure function of three tensors of one
    shape, and of one more for each name in `needs`, to a finite tensor of that shape, through which
    the gradient reaches the logprobs.

    Raises:
        AssertionError: says what broke.
    """
    that(
        not isinstance(objective.needs, str) and all(isinstance(n, str) for n in objective.needs),
        f"needs must be a sequence of names, not {objective.needs!r}",
    )
    that(
        objective.aggregate in ("token", "sequence", "constant"),
        f"aggregate is {objective.aggregate!r}: must be 'token', 'sequence' or 'constant'",
    )

    def check_advantages(drawn: tuple[Group, list[int]]) -> None:
        group, order = drawn
        advantages = pure("advantages", objective.advantages, group)
        is_a(advantages, tuple, "advantages")
        that(
            len(advantages) == len(group.rollouts),
            f"advantages gave {len(advantages)} numbers for {len(group.rollouts)} rollouts",
        )
        that(all(map(math.isfinite, advantages)), f"advantages are not finite: {advantages!r}")
        moved = objective.advantages(_reordered(group, order))
        that(
            all(
                math.isclose(moved[new], advantages[old], rel_tol=1e-9, abs_tol=1e-9)
                for new, old in enumerate(order)
            ),
            "advantages do not follow the rollouts when the group is reordered",
        )
        alike = tuple(evolve(r, outcome=group.rollouts[0].outcome) for r in group.rollouts)
        constant = objective.advantages(evolve(group, rollouts=alike))
        that(
            all(a == 0 for a in constant),
            f"advantages of a group of equal outcomes must be 0, not {constant!r}",
        )

    def with_order(group: Group) -> st.SearchStrategy[tuple[Group, list[int]]]:
        return st.permutations(range(len(group.rollouts))).map(lambda order: (group, order))

    for_all(groups().flatmap(with_order), check_advantages, examples)
    losses = _loss_inputs(tuple(objective.needs))
    for_all(losses, lambda inputs: _check_token_loss(objective, inputs), examples)


def _loss_inputs(needs: Sequence[str]) -> st.SearchStrategy[tuple[Floats, ...]]:
    """Logprobs of both policies, advantages, then what is needed: flags, or logprobs."""

    def of_length(length: int) -> st.SearchStrategy[tuple[Floats, ...]]:
        def each(number: st.SearchStrategy[float]) -> st.SearchStrategy[Floats]:
            return st.lists(number, min_size=length, max_size=length).map(tuple)

        flags = each(st.sampled_from((0.0, 1.0)))
        extras = [flags if need == "demonstrations" else logprobs(length) for need in needs]
        return st.tuples(logprobs(length), logprobs(length), each(st.floats(-4.0, 4.0)), *extras)

    return st.integers(1, 6).flatmap(of_length)


def _check_token_loss(objective: Objective, inputs: Sequence[Floats]) -> None:
    import torch

    length = len(inputs[0])
    # As one sequence, and as a padded batch of one.
    for shape in ((length,), (1, length)):
        tensors = [torch.tensor(x, dtype=torch.float32).view(shape) for x in inputs]
        before = [t.clone() for t in tensors]
        policy = tensors[0].requires_grad_()
        extras = dict(zip(objective.needs, tensors[3:], strict=True))
        loss = objective.token_loss(policy, *tensors[1:3], **extras)
        is_a(loss, torch.Tensor, "token_loss")
        that(
            tuple(loss.shape) == shape,
            f"token_loss gave shape {tuple(loss.shape)} for inputs of shape {shape}",
        )
        that(bool(torch.isfinite(loss).all()), "token_loss is not finite on finite inputs")
        that(loss.requires_grad, "token_loss has no gradient with respect to logprobs")
        again = objective.token_loss(policy, *tensors[1:3], **extras)
        that(torch.equal(loss, again), "token_loss is not pure: equal inputs, another loss")
        that(
            all(torch.equal(now, then) for now, then in zip(tensors, before, strict=True)),
            "token_loss changed its inputs",
        )


def _reordered(group: Group, order: Sequence[int]) -> Group:
    return evolve(group, rollouts=tuple(group.rollouts[i] for i in order))
