"""What makes two evaluations one and the same: only then may one go on where the other stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rti.assemble import Examination
from rti.config import PluginSection, resolve_config
from rti.convert import plain
from rti.errors import ConfigError
from rti.folders import model_folder
from rti.rollout import speaks
from rti.types import Task

EDGE = 1 << 20
"""Bytes at either end of a file that are looked at: training changes every tensor."""


def identity(
    made: Examination, tasks: Sequence[Task], checkpoint: Path | None = None
) -> dict[str, Any]:
    """By section, what decides the trials.

    How a policy is served is no part of it, nor how many trials there are to be, nor options of
    parts that evaluation does not use.
    """
    config = resolve_config(made.config, made.registry)
    found: dict[str, Any] = {
        "run": {"seed": config.run.seed},
        "environment": _section(
            config.environment, getattr(type(made.environment), "serving", frozenset())
        ),
        "policy": {"use": config.policy.use, **getattr(made.policy, "identity", {})},
        "rollout": {"max_turns": config.rollout.max_turns},
        "eval": {
            "split": config.eval.split,
            "temperature": config.eval.temperature,
            "max_new_tokens": config.eval_max_new_tokens,
        },
        "tasks": {"number": len(tasks), "ids": _digest([[t.id, t.family] for t in tasks])},
    }
    if not speaks(made.policy):
        found["rollout"]["max_context"] = config.rollout.max_context
        found["renderer"] = _section(config.renderer)
        found["model"] = {"dtype": config.model.dtype, "weights": _weights(config.model.path)}
    if checkpoint is not None:
        found["checkpoint"] = {"weights": f"{checkpoint.name} {fingerprint(checkpoint)}"}
    result: dict[str, Any] = json.loads(json.dumps(found))
    return result


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In words, where two identities differ."""
    found = []
    for section in sorted(before.keys() | now.keys()):
        was, is_ = before.get(section, {}), now.get(section, {})
        for key in sorted(was.keys() | is_.keys()):
            if was.get(key) != is_.get(key):
                found.append(f"[{section}] {key} was {_shown(was, key)} and is {_shown(is_, key)}")
    return found


def fingerprint(folder: Path) -> str:
    """A hash of a folder's files: their names, sizes, and what stands at either end of each."""
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder)} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(EDGE))
            file.seek(max(0, size - EDGE))
            digest.update(file.read(EDGE))
    return digest.hexdigest()


def _weights(path: str) -> str:
    try:
        folder = model_folder(path)
    except ConfigError:  # a policy that needs none
        return path
    return f"{folder.name} {fingerprint(folder)}"


def _section(section: PluginSection, serving: Collection[str] = ()) -> dict[str, Any]:
    """A section less the options that decide how it is served, and not what comes of it."""
    decisive = {name: v for name, v in section.options.items() if name not in serving}
    return {"use": section.use, **plain(decisive)}


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=6).hexdigest()


def _shown(table: Mapping[str, Any], key: str) -> str:
    return repr(table[key]) if key in table else "not there"
