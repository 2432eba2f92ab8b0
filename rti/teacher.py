"""A teacher that speaks the policy's own tokens: its rollouts, and its logprobs of the policy's.

It is a second local policy over the model of `[teacher] weights`. Roles that a teacher plays
behind an endpoint have nothing to do with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from rti.config import PLUGIN_SECTIONS, Config, PluginSection
from rti.errors import ConfigError, NumericsError
from rti.folders import model_folder
from rti.interfaces import Context, Objective, Renderer
from rti.registry import Registry
from rti.rollout import Actor
from rti.scoring import maybe
from rti.types import Floats, Group, Provenance, RequestKey, Rollout, Sample, Turn

DEMONSTRATIONS, LOGPROBS = "demonstrations", "teacher"
"""What an objective may need of a teacher, by the name it has in `Objective.needs`."""


@define
class Teacher:
    """Plays tasks, and scores what the policy said.

    `open` loads the model; it is called once, when the teacher is first needed. `tries` bounds how
    often it plays a task for one success.
    """

    open: Callable[[], Actor]
    provenance: Provenance
    tries: int = 4
    _actor: Actor | None = field(init=False, default=None)
    _scored: int = field(init=False, default=0)
    _faults: int = field(init=False, default=0)

    @property
    def actor(self) -> Actor:
        """Plays the agent with the teacher's model."""
        if self._actor is None:
            self._actor = self.open()
        return self._actor

    @property
    def usage(self) -> Mapping[str, float]:
        """Counters that only grow. None of them is among the policy's own."""
        sampled = self._actor.policy.usage.get("sampled_tokens", 0.0) if self._actor else 0.0
        return {
            "teacher_tokens_sampled": float(sampled),
            "teacher_tokens_scored": float(self._scored),
            "teacher_faults": float(self._faults),
        }

    async def begin_step(self) -> None:
        """Forget all prefixes: what is kept from earlier steps a resumed run would not have."""
        policy = self.actor.policy
        await policy.load({}, policy.version)

    async def join(
        self, groups: Sequence[Group], size: int, key: Callable[[Rollout], RequestKey]
    ) -> list[Group]:
        """Each group with a successful rollout of the teacher's; as it was, where there is none.

        It takes the last of the `size` places of its group. A group that faults emptied gets none:
        it would be alone. Tasks on which it failed are played again, all together, up to `tries`
        times; `key` gives the request's key for a place.
        """
        whole = list(groups)
        waiting = [i for i, group in enumerate(groups) if group.rollouts]
        for attempt in range(self.tries):
            places = [Rollout(groups[i].task, _last_place(groups[i], size)) for i in waiting]
            keys = [key(place).child(attempt=attempt) for place in places]
            episodes = await self.actor.policy.gather(
                [
                    self.actor.episode(place.task, place.index, own)
                    for place, own in zip(places, keys, strict=True)
                ]
            )
            for i, episode in zip(waiting, episodes, strict=True):
                await episode.close()
                self._faults += episode.rollout.fault is not None
                if episode.rollout.success:
                    demonstration = self._signed(episode.rollout)
                    whole[i] = evolve(groups[i], rollouts=(*groups[i].rollouts, demonstration))
            waiting = [i for i in waiting if whole[i] is groups[i]]
        return whole

    def _signed(self, rollout: Rollout) -> Rollout:
        """With the teacher as its author, and π_roll = 1: the policy did not sample it."""

        def sign(turn: Turn) -> Turn:
            ones = (0.0,) * len(turn.completion_ids)
            return evolve(turn, rollout_logprobs=ones, provenance=self.provenance)

        return evolve(rollout, turns=tuple(map(sign, rollout.turns)))

    async def logprobs(self, samples: Sequence[Sample]) -> tuple[Floats, ...]:
        """For each sample the teacher's logprob of every trained token, at the rollout prompt.

        One pass a sample, from its first trained token to its last; 0 on tokens not trained.

        Raises:
            NumericsError: when the teacher gives no finite number for a token.
        """
        rows = [[0.0] * len(sample.token_ids) for sample in samples]
        trained = [i for i, sample in enumerate(samples) if any(sample.loss_mask)]
        starts = [samples[i].loss_mask.index(True) for i in trained]
        policy = self.actor.policy
        scored = await policy.score(
            [samples[i].token_ids[:start] for i, start in zip(trained, starts, strict=True)],
            [samples[i].token_ids[start:] for i, start in zip(trained, starts, strict=True)],
            policy.version,
        )
        for i, start, logprobs_T in zip(trained, starts, scored, strict=True):
            for t, logprob in enumerate(logprobs_T, start):
                if samples[i].loss_mask[t]:
                    if not math.isfinite(logprob):
                        raise NumericsError(
                            f"[teacher] weights: the teacher's logprob of token {t} of sample {i} "
                            f"is {logprob}: it must be finite"
                        )
                    rows[i][t] = logprob
                    self._scored += 1
        return tuple(map(tuple, rows))

    async def close(self) -> None:
        """The run is over."""
        if self._actor is not None:
            await maybe(self._actor.policy, "close")


def _last_place(group: Group, size: int) -> int:
    """Places are counted on where a task comes again in a step: the group's first may be 8."""
    return group.rollouts[0].index // size * size + size - 1


def needed(objective: Objective) -> bool:
    """Whether the objective learns from a teacher."""
    return bool({DEMONSTRATIONS, LOGPROBS} & set(objective.needs))


def missing(objective: Objective) -> ConfigError:
    """What to say when it does and there is none."""
    return ConfigError(
        "[teacher] weights is empty, but [objective] needs "
        f"{' and '.join(repr(need) for need in objective.needs)} from a teacher. Name the folder "
        "of a model with the policy's own vocabulary; an endpoint ([teacher] base_url) cannot "
        "give them."
    )


def local_teacher(
    config: Config, registry: Registry, context: Context, actor: Callable[[Any], Actor]
) -> Teacher | None:
    """The teacher of `[teacher] weights`, not loaded yet; None where there is none.

    It is a policy of the kind that runs in this process: the run's own, with the options it has
    there, or else the default one. `actor` makes one for a policy.

    Raises when it opens:
        ConfigError: for a folder that cannot be used, or another vocabulary than the policy's.
        PluginError: when the policy lacks an extra.
    """
    weights = config.teacher.weights
    if not weights:
        return None
    [local] = PLUGIN_SECTIONS["policy"]["default"]
    own = config.policy
    section = own if own.use == local else PluginSection("policy", local)

    def open_it() -> Actor:
        policy: Any = registry.build(section)
        with _about_the_teacher(), registry.guard(policy):
            check_vocabulary(weights, tokenizer_of(config, context.renderer))
            policy.bind(evolve(context, model=evolve(config.model, path=weights)))
        return actor(policy)

    origin = registry.provenance("policy", section.use)
    by = Provenance(
        "demonstration", section.use, f"{origin.distribution} {origin.version}".strip(), weights
    )
    return Teacher(open_it, by, config.teacher.demonstration_tries)


def teacher_folder(weights: str) -> Path:
    """The folder that `[teacher] weights` names.

    Raises:
        ConfigError: when there is no such folder.
    """
    with _about_the_teacher():
        return model_folder(weights)


def tokenizer_of(config: Config, renderer: Renderer) -> str:
    """Where the policy's own vocabulary lies."""
    return getattr(renderer, "tokenizer", "") or config.model.path


def check_vocabulary(teacher: str, student: str) -> None:
    """Refuse a teacher whose token ids mean other tokens than the policy's.

    Ids go both ways between the two, so one vocabulary is all that is asked for: text is split
    into tokens by the policy's Renderer alone.

    Raises:
        ConfigError: for a folder without a model or tokenizer, or another vocabulary.
    """
    theirs = _vocabulary(teacher_folder(teacher))
    ours = _vocabulary(Path(student) if Path(student).is_dir() else model_folder(student))
    if theirs == ours:
        return
    other = sorted(t for t in theirs.keys() | ours.keys() if theirs.get(t) != ours.get(t))
    raise ConfigError(
        f"[teacher] weights = {teacher!r}: its tokenizer is not the policy's. {len(other)} tokens "
        f"have another id or none, {other[0]!r} among them (there {theirs.get(other[0])}, here "
        f"{ours.get(other[0])}). Choose a teacher of the policy's own family, or let one with any "
        'tokenizer play roles behind an endpoint: [corrector] use = "teacher".'
    )


def _vocabulary(folder: Path) -> Mapping[str, int]:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"[teacher] weights: the tokenizer in {str(folder)!r} cannot be read, so that the two "
            f"vocabularies cannot be held against each other: {str(error).splitlines()[0]}"
        ) from error
    found: Mapping[str, int] = tokenizer.get_vocab()
    return found


@contextmanager
def _about_the_teacher() -> Iterator[None]:
    """Around what loads a model: its errors name `[model] path`, which is not meant here."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(str(error).replace("[model] path", "[teacher] weights")) from error
