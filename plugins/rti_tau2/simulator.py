"""One live simulator of tau2: made for a task, told apart from others by a fingerprint."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import Any

from attrs import define, field

from rti_tau2 import overlay
from rti_tau2.upstream import Identifiers, catalogue, deterministic, load

SHARED = ("airline", "retail")
"""Domains whose database is read once and shared. Telecom's is small, and its customer's phone is
synchronised with it at every step."""


@define(eq=False)
class Simulator:
    """A simulator, and the ids it has made up."""

    environment: Any = field(repr=False)
    identifiers: Identifiers = field(repr=False)
    shared: bool
    """Whether its database lies over one that others read too."""

    @classmethod
    def of(cls, domain: str, task: Any) -> Simulator:
        """One in the state that `task` begins with. Raises whatever tau2 raises."""
        identifiers = Identifiers()
        state = task.initial_state
        construct = load().registry.get_env_constructor(domain)
        # Data to begin with would be merged into the whole database: then it gets its own.
        shared = domain in SHARED and (state is None or state.initialization_data is None)
        with deterministic(identifiers):
            environment = construct(db=overlay.over(_database(domain))) if shared else construct()
            environment.set_state(
                state.initialization_data if state else None,
                state.initialization_actions if state else None,
                list((state.message_history if state else None) or []),
            )
        return cls(environment, identifiers, shared)

    def fingerprint(self) -> str:
        """Equal for two simulators of a domain exactly when both databases are."""
        state: Any
        if self.shared:
            state = overlay.changes(self.environment.tools.db)
        else:
            state = self.environment.get_db_hash(), self.environment.get_user_db_hash()
        return sha256(repr(state).encode()).hexdigest()


@cache
def _database(domain: str) -> Any:
    """A domain's database as it comes, read once. Nobody may change it."""
    return load().registry.get_env_constructor(domain)().tools.db


@cache
def gold_fingerprint(domain: str, tau2_id: str) -> str:
    """The databases after a task's gold actions, made as tau2's evaluator makes them."""
    task = catalogue(domain).tasks[tau2_id]
    simulator = Simulator.of(domain, task)
    with deterministic(simulator.identifiers):
        for action in task.evaluation_criteria.actions or []:
            try:
                simulator.environment.make_tool_call(
                    tool_name=action.name, requestor=action.requestor, **action.arguments
                )
            except Exception:  # noqa: S112 - some of tau2's gold calls fail, and count for nothing
                continue
    return simulator.fingerprint()
