"""`rti doctor CONFIG`: is this config fit to run, here?

Prints a line a check, by section: ok, note, warning or error, with the way out. Exit code 1 when
there is an error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import textwrap
from typing import TYPE_CHECKING

from rti.commands import add_config_arguments
from rti.convert import did_you_mean, listed
from rti.errors import ConfigError

if TYPE_CHECKING:
    from rti.doctor import Finding
    from rti.registry import Registry

WIDTH = 100
LEVEL, CHECK = 9, 11
"""Columns of the level and of the check's name."""
SHOWN = 10
"""Details of one finding; --json has them all."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Fill the sub-parser of `rti doctor`."""
    parser.description = (
        "Check a config before training: plug-ins and sections, the environment (reference "
        "agents, forks, leaks, cost), the renderer (tools, calls, prefixes, ends of turns), "
        "memory, the policy's and the trainer's logprobs, and the roles."
    )
    add_config_arguments(parser)
    parser.add_argument(
        "--offline",
        action="store_true",
        help="no network, no weights, no GPU: what can be checked without them",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="A,B",
        help="sections: config, environment, renderer, memory, policy, roles (default: all)",
    )
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
    parser.add_argument(
        "--tokens",
        type=int,
        default=8,
        metavar="N",
        help="tokens sampled from each of two prompts, to compare logprobs (default: 8)",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, registry: Registry) -> int:
    """Examine, and print findings as they come."""
    from rti.config import load_config
    from rti.doctor import SECTIONS, Settings, examine, summary

    only = tuple(name.strip() for name in args.only.split(",") if name.strip())
    for name in only:
        if name not in SECTIONS:
            raise ConfigError(
                f"--only {name}: there is no such section.{did_you_mean(name, SECTIONS)} "
                f"There are: {listed(SECTIONS)}."
            )
    if args.tokens < 1 or args.tasks < 0 or args.forks < 0:
        raise ConfigError("--tokens must be at least 1, --tasks and --forks at least 0.")
    settings = Settings(only, args.offline, args.split or "", args.tasks, args.forks, args.tokens)
    findings: list[Finding] = []

    async def look() -> None:
        async for finding in examine(
            lambda: load_config(args.config, args.set), registry, settings
        ):
            if not args.json:
                _show(finding, findings[-1].section if findings else "")
            findings.append(finding)

    asyncio.run(look())
    worst = any(f.level == "error" for f in findings)
    if args.json:
        print(json.dumps(_record(findings, not worst), indent=2, ensure_ascii=False))
    else:
        print(f"\n{summary(findings)}")
    return 1 if worst else 0


def _record(findings: list[Finding], fine: bool) -> dict[str, object]:
    from attrs import asdict

    from rti.doctor import LEVELS

    counts = {level: sum(f.level == level for f in findings) for level in LEVELS}
    return {"ok": fine, "counts": counts, "findings": [asdict(f) for f in findings]}


def _show(finding: Finding, section: str) -> None:
    if finding.section != section:
        print(f"\n{finding.section}" if section else finding.section)
    head = f"  {finding.level:<{LEVEL}}{finding.check:<{CHECK}}"
    margin = " " * len(head)
    lines = textwrap.wrap(finding.text, WIDTH - len(head), break_on_hyphens=False) or [""]
    print(head + f"\n{margin}".join(lines), flush=True)
    for detail in finding.details[:SHOWN]:
        print(
            textwrap.fill(
                detail,
                WIDTH,
                initial_indent=f"{margin}- ",
                subsequent_indent=f"{margin}  ",
                break_on_hyphens=False,
            )
        )
    if len(finding.details) > SHOWN:
        print(f"{margin}… and {len(finding.details) - SHOWN} more (--json lists all)")
