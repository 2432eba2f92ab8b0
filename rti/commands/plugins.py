"""`rti plugins`: what was found, where it comes from, and which options it takes."""

from __future__ import annotations

import argparse
import inspect
import json
import math
from collections.abc import Sequence
from typing import Any

from rti.convert import default_of, did_you_mean, listed, option_types, plain, type_name
from rti.errors import PluginError
from rti.options import options_of
from rti.registry import KINDS, Entry, Plugin, Registry


def configure(parser: argparse.ArgumentParser) -> None:
    """Fill the sub-parser of `rti plugins`."""
    parser.description = (
        "List plug-ins: kind, name, distribution, version, status. With a KIND, show the options "
        "of each. Broken plug-ins are listed with their error; leave one out with --no-plugin."
    )
    parser.add_argument(
        "kind", nargs="?", metavar="KIND", help="only this kind, with options: " + listed(KINDS)
    )
    parser.add_argument("--json", action="store_true", help="everything, as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, registry: Registry) -> int:
    """List the registry. A broken plug-in is news, not a failure: the exit code is 0.

    Raises:
        PluginError: for a kind that does not exist.
    """
    if args.kind is not None and args.kind not in KINDS:
        raise PluginError(
            f"there is no kind {args.kind!r}.{did_you_mean(args.kind, KINDS)} "
            f"There are: {listed(KINDS)}."
        )
    order = list(KINDS)
    entries = sorted(
        (e for e in registry.entries if args.kind in (None, e.kind)),
        key=lambda e: (order.index(e.kind), e.name, e.plugin.distribution),
    )
    silent = [p for p in registry.plugins if all(e.plugin is not p for e in registry.entries)]
    if args.json:
        rows = [_row(e.kind, e.name, e.plugin, e.status, e.error, e.cls) for e in entries]
        rows += [_row("plugin", p.name, p, p.status, p.error, None) for p in silent]
        print(json.dumps(rows, indent=2, allow_nan=False, ensure_ascii=False))
        return 0
    if args.kind is not None:
        print("\n\n".join(_page(e) for e in entries) or f"no plug-in gives a {args.kind}")
    elif not entries and not silent:
        print("no plug-ins were found: the package must be installed for its own to be found")
    else:
        print(_columns(entries, silent))
    for owner in registry.plugins:
        if owner.status == "broken":
            print(f"\nbroken: plug-in {owner}\n  {owner.error}")
    for error in sorted({e.error for e in entries if e.status == "clash"}):
        print(f"\nclash: {error}.")
    return 0


def _row(kind: str, name: str, plugin: Plugin, status: str, error: str, cls: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "plugin": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "status": status,
        "error": error or None,
        "doc": inspect.getdoc(cls) if cls is not None else None,
        "options": _options(cls) if status != "broken" and isinstance(cls, type) else [],
    }


def _options(cls: type) -> list[dict[str, Any]]:
    wanted = option_types(cls)
    return [
        {
            "name": name,
            "type": type_name(wanted[name]),
            "default": _jsonable(plain(default_of(attribute))),
            "doc": attribute.metadata["doc"],
        }
        for name, attribute in options_of(cls).items()
    ]


def _jsonable(value: Any) -> Any:
    """JSON has no infinity: it is written as TOML writes it, in a string."""
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _columns(entries: Sequence[Entry], silent: Sequence[Plugin]) -> str:
    rows = [("KIND", "NAME", "PLUG-IN", "DISTRIBUTION", "VERSION", "STATUS")]
    rows += [
        (e.kind, e.name, e.plugin.name, e.plugin.distribution, e.plugin.version, e.status)
        for e in entries
    ]
    rows += [("plugin", p.name, p.name, p.distribution, p.version, p.status) for p in silent]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _page(entry: Entry) -> str:
    doc = (inspect.getdoc(entry.cls) or "").partition("\n\n")[0]
    lines = [f"{entry.kind} {entry.name!r}: plug-in {entry.plugin}, {entry.status}"]
    lines += [f"  {line}" for line in doc.splitlines()]
    if entry.status != "broken" and isinstance(entry.cls, type):
        for option in _options(entry.cls):
            lines.append(f"    {option['name']}: {option['type']} = {option['default']!r}")
            lines.append(f"        {option['doc']}")
    return "\n".join(lines)
