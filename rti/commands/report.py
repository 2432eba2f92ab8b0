"""`rti report RUN|COMPARE`: one HTML file about a run, or about a compare."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rti.registry import Registry


def configure(parser: argparse.ArgumentParser) -> None:
    """Fill the sub-parser of `rti report`."""
    parser.description = (
        "Write one HTML file about a run, or about a compare: curves, the intervention funnel, "
        "perplexities and weights, what was spent, and repaired rollouts word for word. It needs "
        "no network and opens from the disk. A run that is still going is shown as far as it is."
    )
    parser.add_argument(
        "path",
        type=Path,
        metavar="RUN|COMPARE",
        help="a run's folder, or a compare's folder or compare.json",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="default: report.html in that folder"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, registry: Registry) -> int:
    """Write it, and say where."""
    from rti.report import write_report

    written = write_report(args.path, args.out)
    for note in written.notes:
        print(f"note: {note}")
    shown, told = written.transcripts
    print(f"{written.path}: {written.size / 1e6:.2f} MB, {shown:,} of {told:,} transcripts")
    return 0
