"""`rti doctor CONFIG`: is this environment fit to train on?

Prints a line a check: ok, warning or error, with the way out. Exit code 1 when there is an error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING

from rti.commands import add_config_arguments

if TYPE_CHECKING:
    from rti.registry import Registry


def configure(parser: argparse.ArgumentParser) -> None:
    """Fill the sub-parser of `rti doctor`."""
    parser.description = (
        "Check the environment of a config before training: reference agents (gold must succeed, "
        "doing nothing must not), forks at every turn, privileged strings in evidence, and what a "
        "session costs. Needs no model."
    )
    add_config_arguments(parser)
    parser.add_argument(
        "--split", metavar="NAME", help="split of the tasks (default: that of [rollout])"
    )
    parser.add_argument(
        "--tasks", type=int, default=0, metavar="N", help="most tasks (default: all)"
    )
    parser.add_argument(
        "--forks",
        type=int,
        default=10,
        metavar="N",
        help="tasks that are forked at every turn (default: 10)",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, registry: Registry) -> int:
    """Examine and print."""
    from attrs import asdict

    from rti.config import load_config
    from rti.doctor import examine
    from rti.evaluate import pick_tasks

    config = load_config(args.config, args.set)
    environment = registry.build(config.environment)
    split = args.split or config.rollout.split
    tasks = pick_tasks(environment.tasks(split), (), args.tasks)
    findings = asyncio.run(examine(environment, tasks, split, config.rollout.max_turns, args.forks))
    worst = any(f.level == "error" for f in findings)
    if args.json:
        record = {"ok": not worst, "findings": [asdict(f) for f in findings]}
        print(json.dumps(record, indent=2, ensure_ascii=False))
    else:
        for f in findings:
            print(f"{f.level:<8}{f.check:<12}{f.text}")
            for line in f.details[:10]:
                print(f"{'':<20}{line}")
            if len(f.details) > 10:
                print(f"{'':<20}… and {len(f.details) - 10} more (--json lists all)")
    return 1 if worst else 0
