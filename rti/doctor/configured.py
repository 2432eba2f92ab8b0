"""The config by itself: plug-ins, options, sections that contradict each other. Needs no model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from rti.conformance import stand_in
from rti.doctor.finding import Finding, attempt
from rti.doctor.parts import Parts
from rti.errors import ConfigError, RtiError
from rti.evaluate import pick_tasks
from rti.folders import model_folder
from rti.teacher import check_vocabulary, missing, needed, teacher_folder, tokenizer_of
from rti.types import Group, Rollout, Task

PLUGINS = ("environment", "objective")
"""What is bound whatever is looked at: everything else stands on these."""


async def look(parts: Parts) -> AsyncIterator[Finding]:
    """Build all that the config names, then hold its sections against each other."""
    for finding in await attempt("plug-ins", _build, parts):
        yield finding
    for finding in await attempt("tasks", _tasks, parts):
        yield finding
    for finding in await attempt("model", _model, parts):
        yield finding
    for check, function in (
        ("trainer", _trainer),
        ("teacher", _teacher),
        ("judges", _judges),
        ("when", _when),
        ("room", _room),
    ):
        for finding in await attempt(check, function, parts):
            yield finding


def _build(parts: Parts) -> Iterator[Finding]:
    wrong: list[str] = []
    number = 0
    for name, section in parts.sections():
        number += 1
        try:
            # Reporters stay unbuilt: some write as soon as they live.
            if section.kind == "reporter":
                parts.registry.resolve(section)
            else:
                parts.built[name] = parts.registry.build(section)
        except RtiError as error:
            wrong.append(str(error))
    for name in PLUGINS:
        try:
            parts.bind(name)
        except RtiError as error:
            wrong.append(str(error))
    environment = parts.built.get("environment")
    if environment is not None and (instead := stand_in(environment)) is not None:
        parts.served, parts.built["environment"] = environment, instead
        yield Finding(
            "note",
            "environment",
            "its sessions ask a server; its own stand-in, which asks none, is looked at instead",
        )
    for text in wrong:
        yield Finding("error", "plug-ins", text)
    if not wrong:
        yield Finding("ok", "plug-ins", f"{number} plug-ins named, all there, all options known")


def _tasks(parts: Parts) -> Finding:
    environment = parts["environment"]
    if environment is None:
        return Finding("note", "tasks", "not looked at: there is no environment")
    every = environment.tasks(parts.split)
    if not every:
        return Finding("error", "tasks", f"split {parts.split!r} has no tasks: name another")
    parts.tasks = pick_tasks(every, (), parts.settings.tasks)
    families = len({task.family for task in parts.tasks})
    some = "" if len(parts.tasks) == len(every) else f", {len(parts.tasks)} of them looked at"
    return Finding(
        "ok",
        "tasks",
        f"{len(every)} tasks in split {parts.split!r}{some} ({families} "
        f"{'family' if families == 1 else 'families'})",
    )


def _model(parts: Parts) -> Finding:
    path = parts.config.model.path
    try:
        parts.folder = model_folder(path)
    except ConfigError as error:
        if not parts.offline:
            raise
        if not path:
            return Finding("warning", "model", str(error))
        return Finding(
            "note",
            "model",
            f"{path!r} is not on this machine, so nothing that needs its files is looked at. "
            "Run the doctor again where it is.",
        )
    weights = sorted(Path(parts.folder).glob("*.safetensors"))
    if not weights:
        return Finding(
            "note" if parts.offline else "error",
            "model",
            f"there is no *.safetensors in {str(parts.folder)!r}: weights are read from these "
            "alone. Save the model again with save_pretrained.",
        )
    size = sum(file.stat().st_size for file in weights) / 2**30
    return Finding(
        "ok", "model", f"{path}: config, and {size:.2f} GB of weights in {len(weights)} file(s)"
    )


def _trainer(parts: Parts) -> Iterator[Finding]:
    config, trainer, objective = parts.config, parts["trainer"], parts["objective"]
    if trainer is None or objective is None:
        return
    try:
        supports = trainer.supports(objective)
    except Exception as error:  # a run asks it once it is bound: it may not know before
        yield Finding(
            "note", "trainer", f"{config.trainer.use} does not say yet what it supports: {error}"
        )
        supports = None
    if supports is False:
        yield Finding(
            "error",
            "trainer",
            f"{config.trainer.use} does not support [objective] {config.objective.use}, which "
            f"needs {', '.join(objective.needs) or 'more than it gives'}. Choose another of the "
            "two.",
        )
    elif supports:
        yield Finding(
            "ok", "trainer", f"{config.trainer.use} supports the objective {config.objective.use}"
        )
    if config.intervention.score_by == "trainer" and not hasattr(trainer, "score"):
        yield Finding(
            "error",
            "trainer",
            f'[intervention] score_by = "trainer", but {config.trainer.use} cannot score. Choose '
            'another trainer, or score_by = "policy".',
        )


def _teacher(parts: Parts) -> Finding | None:
    """What a run looks at before it begins: is there a teacher, with the policy's vocabulary?"""
    config, objective, renderer = parts.config, parts["objective"], parts["renderer"]
    weights = config.teacher.weights
    if objective is None or not (weights or needed(objective)):
        return None
    if not needed(objective):
        return Finding(
            "note",
            "teacher",
            f"[teacher] weights = {weights!r} is not loaded: the objective {config.objective.use} "
            "learns from no teacher.",
        )
    if not weights:
        raise missing(objective)
    try:
        teacher_folder(weights)
    except ConfigError:
        if not parts.offline:
            raise
        return Finding("note", "teacher", f"{weights!r} is not on this machine: not looked at")
    if parts.folder is None or renderer is None or parts["policy"] is None:
        return Finding(
            "note",
            "teacher",
            f"{weights} is there; whether it has the policy's vocabulary is not known without the "
            "policy's model and renderer",
        )
    with parts.registry.guard(parts["policy"]):
        check_vocabulary(weights, tokenizer_of(config, renderer))
    return Finding(
        "ok", "teacher", f"{weights} is there, for {config.objective.use}; one vocabulary"
    )


def _judges(parts: Parts) -> Iterator[Finding]:
    config = parts.config
    if not _fires(parts):
        yield Finding(
            "ok",
            "judges",
            f"[trigger] {config.trigger.use} does not fire when a whole group fails: plain "
            "training, no correction to judge",
        )
        return
    if not config.verifier and not config.veto:
        yield Finding(
            "warning",
            "judges",
            "neither [verifier] nor [veto] has a plug-in: a correction that gives the answer away "
            "is learned from. In the article's ablation that ends below plain GRPO.",
        )
    elif not config.veto:
        yield Finding(
            "note",
            "judges",
            "[veto] is empty: only the verifiers' own judgement stops a correction that leaks. "
            "`[veto] use = [...]` adds rules that no judge can be talked out of.",
        )
    elif not config.verifier:
        yield Finding(
            "note",
            "judges",
            "[verifier] is empty: only the rules of [veto] stop a bad correction.",
        )
    else:
        names = ", ".join(section.use for section in (*config.veto, *config.verifier))
        yield Finding("ok", "judges", f"every correction must pass {names}")
    if not config.gate:
        yield Finding(
            "warning",
            "judges",
            "[gate] has no plug-in: corrections that the policy would never write are learned "
            "from. The default is perplexity with delta = 5.",
        )


def _fires(parts: Parts) -> bool:
    """Whether the trigger wants a group whose rollouts failed, every one."""
    trigger = parts["trigger"]
    if trigger is None:
        return True
    task = parts.tasks[0] if parts.tasks else Task("none")
    size = parts.config.rollout.group_size
    return bool(
        trigger.fires(Group(task, tuple(Rollout(task, i, outcome=0.0) for i in range(size))))
    )


def _when(parts: Parts) -> Iterator[Finding]:
    config = parts.config
    if config.intervention.when == "after_rollout":
        return
    needs = getattr(parts["validator"], "needs_observations", None)
    if needs is None:
        yield Finding(
            "note",
            "when",
            'when = "before_step": the Validator judges a turn before its observations are known. '
            f"Whether {config.validator.use} can, it does not say.",
        )
    elif needs:
        yield Finding(
            "warning",
            "when",
            f'when = "before_step", but the Validator {config.validator.use} looks at observations,'
            ' which are not known then: it will flag less or nothing. Use when = "after_rollout".',
        )


def _room(parts: Parts) -> Iterator[Finding]:
    at = parts.config.rollout
    if at.max_context and at.max_new_tokens >= at.max_context:
        yield Finding(
            "error",
            "room",
            f"[rollout] max_new_tokens = {at.max_new_tokens} leaves no room for a prompt in "
            f"max_context = {at.max_context}: every rollout ends before its first turn.",
        )
