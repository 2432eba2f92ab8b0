"""`rti navigation policies` and `rti navigation costs`."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from rti import ConfigError


def navigation_command(parser: argparse.ArgumentParser) -> None:
    """Scripted policies on navigation tasks, and what tasks cost."""
    sub = parser.add_subparsers(title="what to do", required=True, metavar="ACTION")
    policies = sub.add_parser(
        "policies",
        help="success rates of the scripted policies",
        description="Play the scripted policies on the first tasks of a split and print their "
        "success rates with 95 %% intervals (Wilson), in Markdown.",
    )
    policies.add_argument("--split", choices=("train", "test"), default="test", help="of the tasks")
    policies.add_argument("--tasks", type=int, default=500, help="how many (default 500)")
    policies.add_argument("--seed", type=int, default=0, help="seed of cities and tasks")
    policies.add_argument("--json", action="store_true", help="print one JSON object")
    policies.set_defaults(run=_policies)
    costs = sub.add_parser(
        "costs",
        help="what the cities and the tasks of a split take",
        description="Make the cities and the tasks of a split and print what they take: seconds "
        "of one core, and memory. For sessions there is `rti costs navigation`.",
    )
    costs.add_argument("--seed", type=int, default=0, help="seed of cities and tasks")
    costs.set_defaults(run=_costs)


def _policies(args: argparse.Namespace, registry: Any) -> int:
    from rti_navigation import rates
    from rti_navigation.environment import NavigationEnvironment
    from rti_navigation.policies import POLICIES

    _positive(args, "tasks")
    environment = NavigationEnvironment(
        seed=args.seed, train_tasks=args.tasks, test_tasks=args.tasks
    )
    tasks = environment.tasks(args.split)
    results: dict[str, list[rates.Played]] = {}
    for name in POLICIES:
        agent = environment.reference(name)
        assert agent is not None
        results[name] = [asyncio.run(rates.play(environment, task, agent)) for task in tasks]
    if args.json:
        print(json.dumps(rates.record(results)))
    else:
        print("\n".join(rates.table(results)))
    return 0


def _costs(args: argparse.Namespace, registry: Any) -> int:
    from rti_navigation import rates

    _positive(args)
    found = rates.costs(args.seed)
    print(f"cities of a split: {found.world_s:.2f} s, {found.world_mb:.1f} MB, once a process")
    print(f"{found.tasks} tasks: {found.tasks_s:.2f} s, their cities included")
    return 0


def _positive(args: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name} {getattr(args, name)}: must be at least 1")
    if args.seed < 0:
        raise ConfigError(f"--seed {args.seed}: must be at least 0")
