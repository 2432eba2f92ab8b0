"""The command line: global options, built-in commands, commands of plug-ins.

Only the module of the command that was asked for is imported. Exit codes: 0 done, 1 the run
failed, 2 usage or config, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import rti
from rti.commands import BUILT_IN
from rti.convert import did_you_mean, listed
from rti.errors import ConfigError, PluginError, RtiError
from rti.registry import Entry, Registry

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run `rti` and return its exit code. Errors become one message on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    tell = "--traceback" in words
    _let_all_letters_pass()
    try:
        code = _main(words)
        if sys.stdout is not None:  # as it is where the shell closed it: >&-
            sys.stdout.flush()
        return code
    except RtiError as error:
        _show(error, tell)
        _say(str(error))
        return USAGE if isinstance(error, (ConfigError, PluginError)) else FAILED
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left, as `head` does. Python flushes at exit: not into the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # the last resort: nobody is shown a bare traceback unasked
        _show(error, tell)
        hint = "" if tell else " Run again with --traceback to see where, and please report it."
        _say(f"{type(error).__name__}: {error}\nThis is a bug in rti or in a plug-in.{hint}")
        return FAILED


def _let_all_letters_pass() -> None:
    """Text comes from anywhere: a letter that the output does not have is escaped, and no crash."""
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _main(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        print(_version())
        return DONE
    # Global options are taken out first, wherever they stand: which commands there are depends
    # on which plug-ins are loaded.
    chosen, rest = _globals().parse_known_args(words)
    registry = Registry.load(chosen.plugin, chosen.no_plugin)
    commands = {e.name: e for e in registry.entries if e.kind == "command" and e.status == "ok"}
    name = next((word for word in rest if not word.startswith("-")), None)
    if name is not None and name not in (*BUILT_IN, *commands):
        known = [*BUILT_IN, *commands]
        broken = [str(p) for p in registry.plugins if p.status == "broken"]
        note = f" Broken plug-ins may have it: {listed(broken)}." if broken else ""
        raise ConfigError(
            f"there is no command {name!r}.{did_you_mean(name, known)} "
            f"There are: {listed(known)}.{note}"
        )
    parser = _parser(name, commands)
    if not rest:
        parser.print_help()
        return DONE
    args = parser.parse_args(rest)
    if args.command is None:
        parser.error("name a command")
    if getattr(args, "run", None) is None:  # set on the parser, or on the sub-parser of an action
        raise PluginError(
            f"command {name!r} of the plug-in {commands[args.command].plugin} sets no `run`: it "
            "must call parser.set_defaults(run=...) with a function of (args, registry)."
        )
    code = args.run(args, registry)
    return DONE if code is None else int(code)


def _version() -> str:
    return f"rti {rti.__version__}"


def _globals() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rti", add_help=False, allow_abbrev=False)
    _add_globals(parser, default=[])
    return parser


def _add_globals(parser: argparse.ArgumentParser, default: Any) -> None:
    group = parser.add_argument_group("global options, before or after the command")
    group.add_argument(
        "--plugin",
        action="append",
        default=default and list(default),
        metavar="FILE",
        help="load a single-file plug-in; may be given again",
    )
    group.add_argument(
        "--no-plugin",
        action="append",
        default=default and list(default),
        metavar="NAME",
        help="do not load this plug-in, or those of this distribution; may be given again",
    )
    group.add_argument("--traceback", action="store_true", help="show where an error comes from")


def _parser(chosen: str | None, commands: dict[str, Entry]) -> argparse.ArgumentParser:
    """The whole parser. Only the sub-parser of the chosen command is filled."""
    parser = argparse.ArgumentParser(
        prog="rti",
        description="Rollout-Time Intervention for agentic LLM reinforcement learning.",
        epilog="`rti COMMAND --help` says more about a command.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=_version())
    _add_globals(parser, argparse.SUPPRESS)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, built_in in BUILT_IN.items():
        sub = subparsers.add_parser(name, help=built_in.help, allow_abbrev=False)
        if name == chosen:
            module, _, function = built_in.target.partition(":")
            getattr(importlib.import_module(module), function)(sub)
            _add_globals(sub, argparse.SUPPRESS)
    for name, entry in sorted(commands.items()):
        summary = (inspect.getdoc(entry.cls) or f"of the plug-in {entry.plugin}").partition("\n")[0]
        sub = subparsers.add_parser(name, help=summary.replace("%", "%%"), allow_abbrev=False)
        if name == chosen:
            _configure(entry, sub)
            _add_globals(sub, argparse.SUPPRESS)
    return parser


def _configure(entry: Entry, parser: argparse.ArgumentParser) -> None:
    try:
        entry.cls(parser)
    except RtiError:
        raise
    except Exception as error:  # foreign code: whatever it raises, the plug-in is to be named
        raise PluginError(
            f"command {entry.name!r} of the plug-in {entry.plugin} failed: "
            f"{type(error).__name__}: {error}."
        ) from error


def _show(error: BaseException, tell: bool) -> None:
    if tell:
        traceback.print_exception(error, file=sys.stderr)


def _say(message: str) -> None:
    # An undecodable byte of the command line must not be the thing that fails the error message.
    safe = message.encode("utf-8", "backslashreplace").decode("utf-8")
    print(f"rti: {safe}", file=sys.stderr)
