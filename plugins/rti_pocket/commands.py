"""`rti pocket warm-start`: make the base weights anew."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from rti_pocket.lessons import STYLES
from rti_pocket.quickstart import add_quickstart
from rti_pocket.results import add_results
from rti_pocket.serve import add_serve


def pocket_command(parser: argparse.ArgumentParser) -> None:
    """Quick start, base models and results of the pocket worlds."""
    sub = parser.add_subparsers(title="what to do", required=True, metavar="ACTION")
    warm = sub.add_parser(
        "warm-start",
        help="train base weights from scratch (a few minutes)",
        description="Train a fresh base model by the warm-start recipe and write it as a "
        "Hugging Face folder. One thread, float32: equal seeds give equal weights on one machine.",
    )
    warm.add_argument("--seed", type=int, required=True, help="seed of weights and lessons")
    warm.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    warm.add_argument(
        "--steps",
        type=int,
        default=0,
        help="training steps (default: 2000, or 3000 for --world shortcut)",
    )
    warm.add_argument(
        "--style",
        choices=STYLES,
        help="how its corrector writes (default: a mix): a teacher with a hand of its own",
    )
    warm.add_argument(
        "--teacher",
        action="store_true",
        help="make a teacher: it solves the hard families too, seldom leaks, and mostly talks in "
        "a hand of its own",
    )
    warm.add_argument(
        "--world",
        choices=("pocket", "shortcut"),
        default="pocket",
        help="the world it is for: [environment] pocket (default) or pocket-shortcut",
    )
    warm.set_defaults(run=_warm_start)
    add_serve(sub)
    add_quickstart(sub)
    add_results(sub)


def _warm_start(args: argparse.Namespace, registry: Any) -> int:
    from rti_pocket.warmstart import WarmStart, save_base, warm_start

    began = time.monotonic()

    def log(step: int, loss: float) -> None:
        print(f"step {step:5d}  loss {loss:.3f}  {time.monotonic() - began:5.0f} s", flush=True)

    recipe = WarmStart(
        args.seed, args.steps, style=args.style, teacher=args.teacher, world=args.world
    )
    model = warm_start(recipe, log)
    save_base(model, args.out, recipe.words)
    print(f"wrote {args.out}")
    return 0
