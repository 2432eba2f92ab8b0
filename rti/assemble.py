"""Config + registry → a run: every plug-in built and bound, none of them known by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from attrs import define, evolve

from rti.collect import Collector
from rti.config import Config, PluginSection, resolve_config
from rti.errors import ConfigError
from rti.interfaces import Context, Environment, Gate, Policy, Renderer, Reporter, Trainer
from rti.intervene import Repairer, Scope
from rti.registry import Registry
from rti.rollout import Actor, Limits, speaks
from rti.scoring import TrainerScores, maybe
from rti.teacher import local_teacher, needed
from rti.types import Decision, Intervention


@define
class Run:
    """Everything a run is made of."""

    config: Config
    registry: Registry
    environment: Environment
    renderer: Renderer
    policy: Policy
    collector: Collector
    trainer: Trainer | None
    reporters: Sequence[Reporter]
    evaluator: Actor

    @property
    def out(self) -> Path:
        """The folder that the run writes into."""
        return Path(self.config.run.out)

    @property
    def actor(self) -> Actor:
        """The actor that samples training rollouts."""
        return self.collector.actor

    async def close(self) -> None:
        """End what policies and roles have begun: servers, connections. Safe to call twice."""
        for part in (self.policy, self.collector.teacher, *self.collector.repairer.roles):
            await maybe(part, "close")


@define
class Examination:
    """What an evaluation is made of: no roles, no reporters, a trainer only to read a checkpoint.

    A policy that speaks in messages has no renderer.
    """

    config: Config
    registry: Registry
    environment: Environment
    renderer: Renderer | None
    policy: Policy
    trainer: Trainer | None
    evaluator: Actor

    async def close(self) -> None:
        """End what the policy has begun. Safe to call twice."""
        await maybe(self.policy, "close")


def assemble_evaluation(config: Config, registry: Registry, restores: bool = False) -> Examination:
    """Build and bind what an evaluation needs of a config, and no more.

    With `restores` there is a trainer, which can read a checkpoint.

    Raises:
        ConfigError: for options that a plug-in does not have or refuses, or parts that do not fit.
        PluginError: for a plug-in that is unknown, broken, or lacks an extra.
    """
    resolve_config(config, registry)  # a typo is told before anything heavy is imported
    build = registry.build
    environment, policy = build(config.environment), build(config.policy)
    if speaks(policy) and restores:
        raise ConfigError(
            f"[policy] {config.policy.use} speaks in messages and takes no weights: leave the "
            "checkpoint out, or choose a policy that does, as in --set policy.use=hf."
        )
    renderer = cast(Renderer, _NoRenderer()) if speaks(policy) else build(config.renderer)
    objective = build(config.objective) if restores else None
    context = Context(
        config.run.seed, config.model, policy, renderer, environment, objective,
        Path(config.run.out), config.teacher,
    )  # fmt: skip
    bind = _binder(registry, context)
    for part in (environment, policy, renderer, objective):
        bind(part)
    return Examination(
        config, registry, environment, None if speaks(policy) else renderer, policy,
        bind(build(config.trainer)) if restores else None,
        Actor(policy, renderer, environment, _limits(config, evaluation=True)),
    )  # fmt: skip


class _NoRenderer:
    """Stands where a policy that speaks in messages leaves nothing to render."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"renderer.{name}: the policy speaks in messages, so there is no renderer."
        )


def assemble(config: Config, registry: Registry, trains: bool = True) -> Run:
    """Build and bind the plug-ins that a config names.

    With `trains=False` trainer and reporters stay unbuilt: `rti intervene`, `collect` for another
    engine.

    Raises:
        ConfigError: for options that a plug-in does not have or refuses, or parts that do not fit.
        PluginError: for a plug-in that is unknown, broken, or lacks an extra.
    """
    resolve_config(config, registry)  # a typo is told before anything heavy is imported
    build = registry.build
    environment, renderer, policy = (
        build(config.environment),
        build(config.renderer),
        build(config.policy),
    )
    if speaks(policy):
        raise ConfigError(
            f"[policy] {config.policy.use} speaks in messages and has no tokens to train on: it "
            "can only be evaluated, by `rti eval`. Choose another here: --set policy.use=hf."
        )
    objective = build(config.objective)
    context = Context(
        config.run.seed, config.model, policy, renderer, environment, objective,
        Path(config.run.out), config.teacher,
    )  # fmt: skip
    bind = _binder(registry, context)
    for part in (environment, policy, renderer, objective):
        bind(part)
    trainer = bind(build(config.trainer)) if trains else None
    if trainer is not None and not trainer.supports(objective):
        raise ConfigError(
            f"[trainer] {config.trainer.use} does not support [objective] {config.objective.use}: "
            f"it needs {', '.join(objective.needs)}, which this trainer cannot give."
        )
    if config.intervention.score_by == "trainer":
        policy = TrainerScores(policy, lambda: trainer or bind(build(config.trainer)))
    vetoes = [(section.use, bind(build(section))) for section in config.veto]
    actor = Actor(policy, renderer, environment, _limits(config))
    repairer = Repairer(
        actor=actor,
        validator=bind(build(config.validator)),
        corrector=_Stamped.of(bind(build(config.corrector)), config.corrector, registry),
        verifiers=vetoes + [(section.use, bind(build(section))) for section in config.verifier],
        gates=[_NamedGate(bind(build(section)), section.use) for section in config.gate],
        weighter=bind(build(config.weighter)),
        scope=Scope(
            config.intervention.scope,
            config.intervention.when,
            config.intervention.attempts,
            config.intervention.max_corrections,
        ),
        vetters=[(name, veto) for name, veto in vetoes if hasattr(veto, "vet")],
    )
    teacher = local_teacher(config, registry, context, lambda theirs: evolve(actor, policy=theirs))
    collector = Collector(
        actor=actor,
        trigger=bind(build(config.trigger)),
        repairer=repairer,
        objective=objective,
        seed=config.run.seed,
        group_size=config.rollout.group_size,
        repairs_per_group=config.repairs_per_group,
        compose=config.intervention.compose,
        teacher=teacher if needed(objective) else None,
    )
    reporters = [bind(build(section)) for section in config.reporter] if trains else []
    return Run(
        config, registry, environment, renderer, policy, collector, trainer, reporters,
        Actor(policy, renderer, environment, _limits(config, evaluation=True)),
    )  # fmt: skip


def _binder(registry: Registry, context: Context) -> Callable[[Any], Any]:
    def bind(part: Any) -> Any:
        method = getattr(part, "bind", None)
        if method is not None:
            with registry.guard(part):
                method(context)
        return part

    return bind


def _limits(config: Config, evaluation: bool = False) -> Limits:
    at = config.rollout
    return Limits(
        max_turns=at.max_turns,
        max_new_tokens=config.eval_max_new_tokens if evaluation else at.max_new_tokens,
        max_context=at.max_context,
        temperature=config.eval.temperature if evaluation else at.temperature,
        top_p=1.0 if evaluation else at.top_p,
        timeout_s=at.timeout_s,
        retries=at.retries,
    )


@define
class _NamedGate:
    """A gate whose decisions say which gate made them."""

    inner: Gate
    name: str

    def admit(self, intervention: Intervention) -> Decision:
        return evolve(self.inner.admit(intervention), by=self.name)


@define
class _Stamped:
    """A corrector whose corrections say which plug-in wrote them, whatever it forgot to say."""

    inner: Any
    plugin: str
    distribution: str

    @classmethod
    def of(cls, inner: Any, section: PluginSection, registry: Registry) -> _Stamped:
        origin = registry.provenance("corrector", section.use)
        return cls(inner, section.use, f"{origin.distribution} {origin.version}".strip())

    def __getattr__(self, name: str) -> Any:  # the optional members: spent, usage, notes, …
        if name == "inner":  # not set yet: copying and pickling look before there is one
            raise AttributeError(name)
        return getattr(self.inner, name)

    async def correct(self, *args: Any) -> Any:
        correction = await self.inner.correct(*args)
        if correction is None:
            return None
        stamp = evolve(
            correction.provenance,
            kind="correction",
            plugin=self.plugin,
            distribution=self.distribution,
        )
        return evolve(correction, provenance=stamp)
