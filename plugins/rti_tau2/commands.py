"""`rti tau2 check`: does the environment score as τ²-bench's own evaluator does?"""

from __future__ import annotations

import argparse
from typing import Any

from rti import ConfigError


def tau2_command(parser: argparse.ArgumentParser) -> None:
    """τ²-bench: compare scores with its own evaluator."""
    sub = parser.add_subparsers(title="what to do", required=True, metavar="ACTION")
    check = sub.add_parser(
        "check",
        help="compare scores with τ²-bench's own evaluator, and try forks",
        description="Play the gold agent, one that does nothing and a random one, score each "
        "episode here and by τ²-bench's own evaluator, fork gold episodes at every turn, and print "
        "a Markdown table. Exit code 1 when anything disagrees.",
    )
    check.add_argument(
        "--domain",
        choices=("telecom", "retail", "airline"),
        action="append",
        help="may be given again (default: all three)",
    )
    check.add_argument("--tasks", type=int, help="so many of the base tasks (default: all)")
    check.add_argument("--random", type=int, default=200, help="random episodes (default 200)")
    check.add_argument("--forked", type=int, default=20, help="gold episodes forked (default 20)")
    check.add_argument("--seed", type=int, default=0, help="of the random agent")
    check.set_defaults(run=_check)


def _check(args: argparse.Namespace, registry: Any) -> int:
    from rti_tau2 import checks
    from rti_tau2.environment import Tau2Environment

    for name in ("tasks", "random", "forked"):
        if (given := getattr(args, name)) is not None and given < 0:
            raise ConfigError(f"--{name} {given}: must be at least 0")
    print("| episodes | reward 1 | agree | turns |\n|---|---|---|---|", flush=True)
    odd: list[str] = []
    for domain in args.domain or ("telecom", "retail", "airline"):
        environment = Tau2Environment(domain=domain)
        tasks = environment.tasks("base")[: args.tasks]
        for found in checks.all_of(
            environment, tasks, args.random, args.seed, tasks[: args.forked]
        ):
            print(found.as_row(), flush=True)
            odd += [f"{found.what}: {episode}" for episode in found.odd]
    print("\n".join(odd[:20]), end="\n" if odd else "")
    return 1 if odd else 0
