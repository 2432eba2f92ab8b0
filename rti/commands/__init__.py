"""The built-in commands. Each lives in a module of its own, imported when it is asked for.

A command is a function `configure(parser)` that adds its arguments and sets `run` with
`parser.set_defaults(run=...)`: a function of `(args, registry)` that returns an exit code, None
for 0. Commands of plug-ins have the same shape.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from attrs import frozen


@frozen
class BuiltIn:
    """A built-in command: where its `configure` is, and one line of help."""

    target: str
    help: str


BUILT_IN: Mapping[str, BuiltIn] = {
    "train": BuiltIn("rti.commands.train:configure", "train a policy, with interventions"),
    "eval": BuiltIn("rti.commands.eval:configure", "evaluate a policy; never intervenes"),
    "intervene": BuiltIn(
        "rti.commands.intervene:configure", "show interventions on a task, without training"
    ),
    "doctor": BuiltIn("rti.commands.doctor:configure", "check a run before it runs"),
    "compare": BuiltIn(
        "rti.commands.compare:configure", "run arms × seeds and print a table with intervals"
    ),
    "report": BuiltIn(
        "rti.commands.report:configure", "write a run, or a compare, as one HTML page"
    ),
    "costs": BuiltIn(
        "rti.commands.costs:configure", "measure what environments cost in time and memory"
    ),
    "plugins": BuiltIn("rti.commands.plugins:configure", "list plug-ins and their options"),
}
"""The commands that come with `rti`, in the order that `rti --help` shows them."""


def add_config_arguments(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """Add CONFIG and `--set`: `load_config(args.config, args.set)` takes them."""
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs=None if required else "?",
        help="a TOML file, e.g. from recipes/",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.OPTION=VALUE",
        help="change one option; may be given again",
    )
