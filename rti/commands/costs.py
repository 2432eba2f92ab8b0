"""`rti costs`: what environments cost, as a table."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from typing import TYPE_CHECKING

from attrs import asdict

from rti.errors import ConfigError

if TYPE_CHECKING:
    from rti.costs import Costs
    from rti.registry import Registry


def configure(parser: argparse.ArgumentParser) -> None:
    """Fill the sub-parser of `rti costs`."""
    parser.description = (
        "Play whole episodes of environments with their gold agents, many at once, and print what "
        "they take of one core, and of memory, as a Markdown table. No model takes part."
    )
    parser.add_argument(
        "environments",
        nargs="+",
        metavar="NAME[,OPTION=VALUE...]",
        help="an environment, with options: tau2,domain=airline",
    )
    parser.add_argument("--split", default="train", help="of the tasks (default train)")
    parser.add_argument("--sessions", type=int, default=32, help="live at once (default 32)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="sessions × rounds episodes are played (default 5)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, registry: Registry) -> int:
    """Measure, and print.

    Raises:
        ConfigError: for options that cannot be, or a split without tasks.
        PluginError: for an environment that there is not.
    """
    for name in ("sessions", "rounds"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name} {getattr(args, name)}: must be at least 1")
    found = {text: _measured(text, args, registry) for text in args.environments}
    if args.json:
        print(json.dumps({text: asdict(costs) for text, costs in found.items()}, indent=2))
        return 0
    print(
        f"| environment | episodes a second | turns a second | ms to start | MB a session |"
        f" MB, {args.sessions} sessions |\n|---|---|---|---|---|---|"
    )
    for text, costs in found.items():
        print(
            f"| {text.replace('|', chr(92) + '|')} | {costs.episodes_a_second:,.0f} "
            f"| {costs.turns_a_second:,.0f} | {costs.start_ms:.2f} | {costs.session_mb:.3f} "
            f"| {costs.peak_mb:.1f} |"
        )
    return 0


def _measured(text: str, args: argparse.Namespace, registry: Registry) -> Costs:
    from rti.config import load_config
    from rti.conformance import says_a_word, stand_in
    from rti.costs import measure

    name, *options = text.split(",")
    for option in options:
        if not re.fullmatch(r"\w+=.*", option):
            raise ConfigError(
                f"{option!r} in {text!r}: wanted OPTION=VALUE, as in tau2,domain=retail"
            )
    changes = [f"environment.use={name}", *(f"environment.{option}" for option in options)]
    environment = registry.build(load_config(None, changes).environment)
    environment = stand_in(environment) or environment
    tasks = environment.tasks(args.split)
    if not tasks:
        raise ConfigError(f"[environment] {name} has no tasks in its split {args.split!r}.")
    gold = environment.reference("gold")
    if gold is None:
        print(f"note: {name} has no gold agent: its episodes are cut short", file=sys.stderr)
    agent = gold or environment.reference("noop") or says_a_word
    return asyncio.run(measure(environment, tasks, agent, args.sessions, args.rounds))
