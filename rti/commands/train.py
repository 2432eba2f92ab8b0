"""`rti train CONFIG`: the whole loop, resumable."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from rti.commands import add_config_arguments

if TYPE_CHECKING:
    from rti.registry import Registry


def configure(parser: argparse.ArgumentParser) -> None:
    """Fill the sub-parser of `rti train`."""
    parser.description = (
        "Train a policy: rollouts, interventions where a whole group failed, updates. The run "
        "writes config.toml, events.jsonl and checkpoints into [run] out. Ctrl-C saves and exits."
    )
    add_config_arguments(parser)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on from the newest checkpoint in [run] out (from the start if there is none)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, registry: Registry) -> int:
    """Train to the end."""
    from rti.assemble import assemble
    from rti.checkpoint import latest
    from rti.config import load_config
    from rti.engine import CHECKPOINTS, train

    config = load_config(args.config, args.set)
    if args.resume and latest(Path(config.run.out) / CHECKPOINTS) is None:
        print(f"no checkpoint in {config.run.out}: starting anew", flush=True)
    made = assemble(config, registry)

    async def work() -> None:
        try:
            await train(made, resume=args.resume)
        finally:
            await made.close()

    asyncio.run(work())
    return 0
