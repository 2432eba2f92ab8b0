"""Built-in reporters: a console for people, JSON lines for programs."""

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_reporters.console import ConsoleReporter
from rti_reporters.jsonl import JsonlReporter


@hookimpl
def rti_reporters() -> Mapping[str, Any]:
    """Console and JSONL."""
    return {"console": ConsoleReporter, "jsonl": JsonlReporter}
