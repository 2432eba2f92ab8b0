"""Read a run's `events.jsonl`, whatever state it is in: finished, going on, killed, cut short."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field

from rti.errors import RunError
from rti.report.log import Evaluation, Look, RunLog, Status, Step, number

EVENTS = "events.jsonl"
CONFIG = "config.toml"


def read_run(folder: Path) -> RunLog:
    """Read the events of a run's folder.

    Raises:
        RunError: when there are none, or none can be read.
    """
    path = folder / EVENTS
    try:
        reader = _Reader()
        with path.open("rb") as file:
            for line in file:
                reader.take(line)
    except OSError as error:
        raise RunError(
            f"{path}: cannot be read ({error.strerror}). A run writes it with the reporter "
            "'jsonl', which is on unless [reporter] says otherwise."
        ) from error
    if not reader.events:
        what = (
            f"holds no event in {reader.unread + reader.cut} lines" if reader.offset else "is empty"
        )
        raise RunError(
            f"{path} {what}: the run has not begun yet, or this is no events.jsonl of `rti train`."
        )
    return reader.result(folder)


def texts(folder: Path, looks: Iterable[Look]) -> list[dict[str, Any]]:
    """The whole records of some looks, in their order.

    Raises:
        RunError: when the file changed meanwhile, as it does when a run is resumed.
    """
    path = folder / EVENTS
    records = []
    with path.open("rb") as file:
        for look in looks:
            offset, size = look.place
            file.seek(offset)
            record = _parse(file.read(size))
            if record is None or record.get("event") != "TurnRepaired":
                raise RunError(f"{path} changed while it was read: run `rti report` again.")
            records.append(record)
    return records


@define
class _Reader:
    """Takes line after line. The last word on anything counts: a resumed run begins anew."""

    events: int = 0
    unread: int = 0
    cut: bool = False
    offset: int = 0
    started: Mapping[str, Any] = field(factory=dict)
    ended: Mapping[str, Any] | None = None
    last: str = ""
    steps: dict[int, Step] = field(factory=dict)
    evaluations: dict[int, Evaluation] = field(factory=dict)
    looks: list[Look] = field(factory=list)

    def take(self, line: bytes) -> None:
        """One line, its line break included; without one it is a line that was cut short."""
        place = (self.offset, len(line))
        self.offset += len(line)
        record = _parse(line)
        if record is None:
            if not line.endswith(b"\n"):
                self.cut = True
            elif line.strip():
                self.unread += 1
            return
        try:
            known = self._record(record, place)
        except (TypeError, ValueError, KeyError, OverflowError):  # a number or a name that is none
            known = False
        if known:
            self.events += 1
            self.last = str(record.get("time", self.last))
        else:
            self.unread += 1

    def _record(self, record: Mapping[str, Any], place: tuple[int, int]) -> bool:
        match record.get("event"):
            case "RunStarted":
                self.started, self.ended = record, None
            case "StepDone":
                step = int(record["step"])
                words = str(record.get("words", ""))
                self.steps[step] = Step(step, _numbers(record["metrics"]), words)
            case "Evaluated":
                step = int(record["step"])
                by_family = dict(record.get("families") or {})
                rows = {str(name): _numbers(row) for name, row in by_family.items()}
                self.evaluations[step] = Evaluation(step, _numbers(record["metrics"]), rows)
            case "TurnRepaired":
                self.looks.append(_look(record, place))
            case "RunEnded":
                self.ended = record
            case "CheckpointSaved":
                pass
            case _:  # an event of another version, or of a plug-in: nothing to be said of it
                return isinstance(record.get("event"), str)
        return True

    def result(self, folder: Path) -> RunLog:
        """What was read."""
        ended = self.ended or {}
        status = ended.get("status")
        known: dict[Any, Status] = {s: s for s in ("done", "interrupted", "failed")}
        steps = tuple(self.steps[s] for s in sorted(self.steps))
        spent = number(ended.get("tokens"))
        if spent is None:
            spent = max((s.metrics.get("tokens", 0.0) for s in steps), default=0.0)
        return RunLog(
            folder=folder,
            started=self.started,
            steps=steps,
            evaluations=tuple(self.evaluations[s] for s in sorted(self.evaluations)),
            looks=tuple(self.looks),
            status=known.get(status, "open"),
            reason=str(ended.get("reason") or ""),
            seconds=number(ended.get("seconds")),
            tokens=spent,
            last=self.last,
            cut=self.cut,
            unread=self.unread,
            config=_config(folder / CONFIG),
        )


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _look(record: Mapping[str, Any], place: tuple[int, int]) -> Look:
    turn, weights = record.get("turn"), record.get("weights") or ()
    return Look(
        step=int(record["step"]),
        task=str(record["task"]),
        family=str(record.get("family", "")),
        rollout=int(record["rollout"]),
        attempt=int(record.get("attempt", 0)),
        turn=None if turn is None else int(turn),
        stage=str(record["stage"]),
        reason=str(record.get("reason", "")),
        perplexity=number(record.get("perplexity")),
        threshold=number(record.get("threshold")),
        weights=tuple(w for w in map(number, weights) if w is not None),
        outcome=number(record.get("outcome")),
        trained=record.get("trained") is True,
        place=place,
    )


def _numbers(table: Any) -> dict[str, float]:
    if not isinstance(table, Mapping):
        raise TypeError("metrics: not a table")
    return {str(k): v for k, v in ((k, number(v)) for k, v in table.items()) if v is not None}


def _config(path: Path) -> Mapping[str, Any]:
    """The run's config; without one, or with one that is none, nothing: the events count."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
