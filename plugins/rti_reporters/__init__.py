"""Built-in reporters: a console for people, JSON lines for programs, TensorBoard for curves."""

from collections.abc import Mapping
from typing import Any

from rti import hookimpl
from rti_reporters.console import ConsoleReporter
from rti_reporters.jsonl import JsonlReporter
from rti_reporters.tensorboard import TensorBoardReporter


@hookimpl
def rti_reporters() -> Mapping[str, Any]:
    """Console, JSONL and TensorBoard."""
    return {
        "console": ConsoleReporter,
        "jsonl": JsonlReporter,
        "tensorboard": TensorBoardReporter,
    }
