"""Groups to a batch: masks, alignment, splits where the prefix breaks, shared prefixes."""

from __future__ import annotations

import math

import pytest
from attrs import define, evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from rti import Group, Message, NumericsError, Provenance, Rollout, Task, Turn
from rti.batch import build_batch, pieces
from rti.testing import ids
from rti_grpo import Grpo

CORRECTION = Provenance("correction", "mine", model="m", template="t", verdicts=("judge",))
quick = settings(max_examples=60, deadline=None)


def extends(before, after):
    return tuple(after[: len(before)]) == tuple(before)


def turn(index, prompt, completion, logprobs=None, weights=None, by=None):
    return Turn(
        index,
        tuple(prompt),
        tuple(completion),
        tuple(-0.1 * (i + 1) for i in range(len(completion))) if logprobs is None else logprobs,
        Message("assistant"),
        weights=weights,
        provenance=by or Provenance(),
    )


@define
class Given:
    """An objective whose advantages are given."""

    values: list

    needs = ()
    aggregate = "token"

    def advantages(self, group):
        return tuple(self.values[: len(group.rollouts)])


def group(*rollouts, task="t"):
    made = [
        Rollout(Task(task), i, tuple(turns), outcome=float(i % 2), success=bool(i % 2))
        for i, turns in enumerate(rollouts)
    ]
    return Group(Task(task), tuple(made))


def batch_of(*groups, objective=None, **kwargs):
    return build_batch(groups, objective or Grpo(), extends, 5, **kwargs)


@st.composite
def conversations(draw, breaks=True):
    """Turns whose prompts extend the last turn's tokens, except where one breaks.

    Returns (turns, indices of turns at which the prefix broke).
    """
    turns, broken, so_far = [], [], ()
    for k in range(draw(st.integers(1, 4))):
        prompt = so_far + draw(ids(max_size=4))
        if breaks and k and draw(st.booleans()):
            prompt = (99, *draw(ids(max_size=6)))
            broken.append(k)
        completion = draw(ids(max_size=5))
        corrected = draw(st.booleans())
        weights = None
        if corrected:
            weights = tuple(
                draw(
                    st.lists(
                        st.floats(0.8, 1.2), min_size=len(completion), max_size=len(completion)
                    )
                )
            )
        turns.append(
            turn(k, prompt, completion, weights=weights, by=CORRECTION if corrected else None)
        )
        so_far = prompt + completion
    return turns, broken


# --- one rollout ----------------------------------------------------------------------------


@quick
@given(conversations(), st.floats(-3, 3).filter(bool))
def test_every_token_stands_where_it_was_said(drawn, advantage):
    turns, broken = drawn
    batch = batch_of(group(turns), objective=Given([advantage]))
    assert len(batch) == 1 + len(broken)
    assert batch.metrics["splits"] == len(broken)
    waiting = list(turns)
    for sample in batch.samples:
        n = len(sample.token_ids)
        assert {len(sample.loss_mask), len(sample.rollout_logprobs), len(sample.advantages)} == {n}
        assert len(sample.weights) == n
        covered = set()
        for span in sample.spans:
            said = waiting.pop(0)
            where = slice(span.start, span.stop)
            assert sample.token_ids[where] == said.completion_ids
            assert sample.token_ids[: span.start] == said.prompt_ids
            assert sample.rollout_logprobs[where] == said.rollout_logprobs
            weights = said.weights or (1.0,) * len(said.completion_ids)
            assert sample.weights[where] == weights
            assert sample.advantages[where] == tuple(advantage * w for w in weights)
            assert span.provenance == said.provenance
            covered |= set(range(span.start, span.stop))
        # Only what the agent said is in the loss: no prompt, no tool result, no user.
        assert {i for i, m in enumerate(sample.loss_mask) if m} == covered
        for i in set(range(n)) - covered:
            assert (sample.rollout_logprobs[i], sample.advantages[i], sample.weights[i]) == (
                0,
                0,
                1,
            )
    assert waiting == []
    assert batch.metrics["trained_tokens"] == sum(len(t.completion_ids) for t in turns)
    assert batch.metrics["corrected_tokens"] == sum(
        len(t.completion_ids) for t in turns if t.corrected
    )


def test_a_turn_cut_short_gets_its_end_from_the_next_prompt_and_that_is_not_trained():
    cut, then = turn(0, (1, 2), (3, 4)), turn(1, (1, 2, 3, 4, 0, 7), (8, 0))
    [sample] = batch_of(group([cut, then]), objective=Given([1.0])).samples
    assert sample.token_ids == (1, 2, 3, 4, 0, 7, 8, 0)
    assert sample.loss_mask == (False, False, True, True, False, False, True, True)


def test_a_retokenised_history_splits_the_rollout():
    first, second = turn(0, (1, 2), (3, 4)), turn(1, (1, 2, 34, 5), (6,))
    batch = batch_of(group([first, second], [first]), objective=Given([-1.0, 2.0]))
    assert [s.token_ids for s in batch.samples] == [(1, 2, 3, 4), (1, 2, 34, 5, 6), (1, 2, 3, 4)]
    # Advantage and rollout number count the rollout once, however many samples it became.
    assert [s.rollout for s in batch.samples] == [0, 0, 1]
    assert [max(s.advantages, key=abs) for s in batch.samples] == [-1.0, -1.0, 2.0]
    assert batch.metrics["splits"] == 1


def test_a_rollout_without_turns_has_no_sample_and_keeps_its_number():
    batch = batch_of(group([], [turn(0, (1,), (2,))]), objective=Given([-1.0, 1.0]))
    assert [s.rollout for s in batch.samples] == [1]
    assert pieces(Rollout(Task("t"), 0), extends) == []


@pytest.mark.parametrize(
    ("logprobs", "weights"),
    [((-0.1,), None), ((-0.1,) * 3, None), ((), None), ((-0.1, -0.2), (1.0,)), ((-0.1, -0.2), ())],
)
def test_mismatched_lengths_are_an_error(logprobs, weights):
    odd = turn(0, (1,), (2, 3), logprobs, weights)
    with pytest.raises(NumericsError, match="2 tokens"):
        batch_of(group([odd], [odd]))


# --- groups ---------------------------------------------------------------------------------


def test_groups_without_signal_are_left_out():
    said = [turn(0, (1, 2), (3,))]
    flat = Group(
        Task("flat"), tuple(Rollout(Task("flat"), i, tuple(said), outcome=0.0) for i in (0, 1))
    )
    solved = Group(
        Task("s"),
        tuple(Rollout(Task("s"), i, tuple(said), outcome=1.0, success=True) for i in (0, 1)),
    )
    empty = Group(Task("gone"), (), faults=2)
    mixed = group(said, said)
    batch = batch_of(flat, mixed, empty, solved, mixed)
    assert [s.group for s in batch.samples] == [1, 1, 4, 4]
    assert [s.rollout for s in batch.samples] == [0, 1, 2, 3]  # numbered over the whole batch
    assert batch.metrics["groups_with_signal"] == 2
    assert batch.groups == (flat, mixed, empty, solved, mixed)
    assert batch.policy_version == 5
    nothing = batch_of(flat, solved, empty)
    assert len(nothing) == 0
    assert nothing.metrics["trained_tokens"] == nothing.metrics["groups_with_signal"] == 0


def test_advantages_that_do_not_match_the_group_are_an_error():
    said = [turn(0, (1, 2), (3,))]
    with pytest.raises(NumericsError, match="1 advantages for the 2 rollouts of task t"):
        batch_of(group(said, said), objective=Given([1.0]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_outcomes_that_make_no_sense_are_an_error(bad):
    rollouts = group([turn(0, (1,), (2,))], [turn(0, (1,), (2,))]).rollouts
    odd = Group(Task("t"), (evolve(rollouts[0], outcome=bad), rollouts[1]))
    with pytest.raises(NumericsError):
        batch_of(odd)


def test_metrics_and_aux_are_carried():
    said = [turn(0, (1, 2), (3,))]
    batch = batch_of(group(said, said), metrics={"seconds": 2.0}, aux={"teacher": [1]})
    assert batch.metrics["seconds"] == 2.0
    assert batch.aux == {"teacher": [1]}


# --- shared prefixes ------------------------------------------------------------------------


@quick
@given(st.lists(ids(max_size=6, vocab_size=2), min_size=2, max_size=5))
def test_each_sample_names_the_earlier_one_with_the_longest_common_prefix(completions):
    before = group([turn(0, (9,), (9,))], [turn(0, (9,), (9,))], task="before")
    mixed = group(*[[turn(0, (7,), c)] for c in completions])
    batch = batch_of(before, mixed)
    own = [(i, s) for i, s in enumerate(batch.samples) if s.group == 1]
    assert own[0][1].shared_prefix is None  # never across groups

    def common(a, b):
        length = 0
        while length < min(len(a), len(b)) and a[length] == b[length]:
            length += 1
        return length

    for place, (_, sample) in enumerate(own[1:], start=1):
        lengths = {i: common(sample.token_ids, s.token_ids) for i, s in own[:place]}
        parent, length = sample.shared_prefix
        assert length == lengths[parent] == max(lengths.values()) > 0


def test_without_a_common_token_there_is_no_prefix():
    batch = batch_of(group([turn(0, (1,), (2,))], [turn(0, (3,), (2,))]))
    assert [s.shared_prefix for s in batch.samples] == [None, None]
