"""`events.jsonl`: one event a line, through structlog."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import structlog
from attrs import define, field

from rti import Context
from rti.checkpoint import replacing
from rti.events import as_record

FILE = "events.jsonl"


def whole_lines(path: Path, only: bytes = b"") -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The lines of a log that hold an event of some step, one at a time: a log may be gigabytes.

    Others are left out: a kill cuts the last one short, perhaps within a letter. With `only`, so
    are lines without these bytes.
    """
    with path.open("rb") as file:
        for line in file:  # ends at \n alone: a customer's text may hold other line breaks
            if only not in line:
                continue
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                yield line.rstrip(b"\n"), record


def _late(record: Mapping[str, Any], step: int) -> bool:
    """Whether a run that goes on from a checkpoint at `step` will tell this event again."""
    late = record["step"] == step and record.get("event") in ("StepDone", "TurnRepaired")
    return late or record["step"] > step


@define
class JsonlReporter:
    """Writes every event into the run's `events.jsonl`."""

    _path: Path = field(init=False, default=Path(FILE))
    _file: Any = field(init=False, default=None, repr=False)
    _log: Any = field(init=False, default=None, repr=False)

    def bind(self, context: Context) -> None:
        """The file lies in the run's folder."""
        assert context.out is not None
        self._path = context.out / FILE

    def rewind(self, step: int) -> None:
        """Drop what a killed run wrote after the checkpoint that it goes on from; −1: all of it."""
        if not self._path.exists():
            return
        with replacing(self._path) as file:
            for line, record in whole_lines(self._path):
                if not _late(record, step):
                    file.write(line + b"\n")

    def report(self, event: Any) -> None:
        """Append one line."""
        if self._log is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Texts come from anywhere. Half a surrogate pair becomes its escape, as JSON has it.
            self._file = self._path.open("a", encoding="utf-8", errors="backslashreplace")
            self._log = structlog.wrap_logger(
                structlog.WriteLogger(self._file),
                processors=[
                    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
                    structlog.processors.JSONRenderer(sort_keys=False, ensure_ascii=False),
                ],
            )
        record = as_record(event)
        self._log.msg(record.pop("event"), **record)

    def close(self) -> None:
        """Flush to the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = self._log = None
