"""`events.jsonl`: one event a line, through structlog."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import structlog
from attrs import define, field

from rti import Context
from rti.checkpoint import write_text
from rti.events import as_record

FILE = "events.jsonl"


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
        kept = []
        # Not splitlines: a customer's text may hold other line breaks. And a kill may cut a letter.
        for line in self._path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                record = json.loads(line)
            except ValueError:  # the line that the kill cut short
                continue
            late = record["step"] > step or (
                record["step"] == step and record["event"] in ("StepDone", "TurnRepaired")
            )
            if not late:
                kept.append(line + "\n")
        write_text(self._path, "".join(kept))

    def report(self, event: Any) -> None:
        """Append one line."""
        if self._log is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8")
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
