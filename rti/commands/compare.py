"""`rti compare FILE`: arms × seeds, in parallel, resumable, with intervals."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rti.compare import Plan
    from rti.registry import Registry


def configure(parser: argparse.ArgumentParser) -> None:
    """Fill the sub-parser of `rti compare`."""
    parser.description = (
        "Run every arm of a compare file on every seed, as many at once as there are cores, and "
        "print held-out results with 95 % intervals over seeds and paired differences. Finished "
        "runs are not run again: a compare that was stopped goes on where it was."
    )
    parser.add_argument("file", metavar="FILE", help="a compare file, e.g. from recipes/compare")
    parser.add_argument("--jobs", type=int, default=0, help="runs at once (default: the cores)")
    parser.add_argument(
        "--rerun",
        action="append",
        default=[],
        metavar="ARM",
        help="throw its runs away first, and those of arms that take their tokens from it",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would run and what is done, and end"
    )
    parser.add_argument(
        "--save",
        type=Path,
        metavar="DIR",
        help="also write the results there, under the compare file's name",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, registry: Registry) -> int:
    """Run what is to run, and print the tables."""
    from rich.console import Console

    from rti.compare import carry_out, plan, read_spec, save
    from rti.compare.progress import Progress
    from rti.errors import ConfigError

    if args.jobs < 0:
        raise ConfigError(f"--jobs {args.jobs}: must be at least 1; 0 for the number of cores.")
    if args.save is not None and args.save.exists() and not args.save.is_dir():
        raise ConfigError(f"--save {args.save}: name a folder; that is a file.")
    made = plan(read_spec(args.file), registry, args.rerun)
    console = Console(highlight=False)
    if args.dry_run:
        for line in _listed(made):
            console.print(line, markup=False, soft_wrap=True)
        return 0
    with Progress(made, console) as progress:
        found = carry_out(made, args.jobs or os.cpu_count() or 1, progress.tell)
    _show(found, console)
    place = Path(made.spec.out)
    console.print(f"Written: {place}/compare.json, .csv, .md", markup=False, soft_wrap=True)
    if args.save is not None:
        stem = args.save / Path(args.file).stem
        save(found, stem)
        console.print(f"Saved: {stem}.json, .csv, .md", markup=False, soft_wrap=True)
    look = f"To look at it: rti report {shlex.quote(str(place))}"
    console.print(look, markup=False, soft_wrap=True)
    return 0


def _listed(made: Plan) -> Iterator[str]:
    parts = [*(p.name for p in made.preparations), *(c.name for c in made.cells)]
    for name in parts:
        yield f"{'done' if name in made.done else 'to do':6} {name}"
    yield f"{sum(c.name in made.done for c in made.cells)} of {len(made.cells)} runs are done."


def _show(found: dict[str, Any], console: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    from rti.compare.output import arm_rows, blocks, pair_rows

    for rows in (list(arm_rows(found)), list(pair_rows(found))):
        for head, *body in blocks(rows, console.width):
            table = Table(show_edge=False)
            for column in head:
                side: Any = "left" if column == head[0] else "right"
                table.add_column(Text(column), justify=side, no_wrap=True, overflow="ignore")
            for row in body:
                table.add_row(*map(Text, row))
            console.print(table, "", soft_wrap=True)
    for note in found["notes"]:
        console.print(f"warning: {note}", markup=False)
    console.print(found["method"], markup=False)
