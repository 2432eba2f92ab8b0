"""Trials on disk: each is appended when it ends, so that a killed evaluation goes on from there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from attrs import asdict, define, field

from rti.errors import ConfigError, RunError
from rti.evaluate import Trial
from rti.evaluation.identity import differences

TRIALS = "trials.jsonl"
FORMAT = 1


@define
class TrialStore:
    """The file of an evaluation's trials, open for appending."""

    path: Path
    trials: dict[tuple[str, int], Trial] = field(factory=dict)
    versions: list[Mapping[str, str]] = field(factory=list)
    """Of the program, at each start; the last ones are those of now."""
    _file: IO[bytes] | None = field(init=False, default=None, repr=False)

    @property
    def whole(self) -> list[Trial]:
        """The trials that need not be played again: those without a fault."""
        return [t for t in self.trials.values() if t.fault is None]

    def append(self, trial: Trial) -> None:
        """Keep a trial."""
        self.trials[trial.task, trial.trial] = trial
        self._write({"record": "trial", **asdict(trial)})

    @classmethod
    @contextmanager
    def opened(
        cls, folder: Path, identity: Mapping[str, Any], versions: Mapping[str, str]
    ) -> Iterator[TrialStore]:
        """The store of a folder, for this evaluation alone.

        Raises:
            ConfigError: another evaluation's trials are in there, or it is at work there.
            RunError: what is in there cannot be read.
        """
        store = cls(folder / TRIALS)
        with _opened(store.path) as file:
            _lock(file, folder)
            store._file = file
            if not store._read(identity):
                head = {"record": "evaluation", "format": FORMAT, "identity": identity}
                store._write(head)
            store.versions.append(dict(versions))
            store._write({"record": "session", "versions": versions})
            yield store

    def _write(self, record: Mapping[str, Any]) -> None:
        assert self._file is not None
        try:
            text = json.dumps(record, ensure_ascii=False)
            self._file.write(text.encode("utf-8", "backslashreplace") + b"\n")
            self._file.flush()
        except OSError as error:
            raise RunError(
                f"{self.path} cannot be written ({error}): what it holds is kept. Make room and "
                "run it again."
            ) from error

    def _read(self, identity: Mapping[str, Any]) -> bool:
        """Take in what is there; a line that was cut short is dropped. False: there is nothing."""
        assert self._file is not None
        self._file.seek(0)
        lines = self._file.read().split(b"\n")
        if lines[-1]:
            self._file.truncate(sum(len(line) + 1 for line in lines[:-1]))
        for number, line in enumerate(lines[:-1], 1):
            try:
                self._take(json.loads(line), identity)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise RunError(
                    f"{self.path}:{number} cannot be read ({type(error).__name__}: {error}). Take "
                    "that line out, or choose another --out."
                ) from error
        return len(lines) > 1

    def _take(self, record: dict[str, Any], identity: Mapping[str, Any]) -> None:
        kind = record.pop("record")
        if kind == "trial":
            trial = Trial(**record)
            self.trials[trial.task, trial.trial] = trial
        elif kind == "session":
            self.versions.append(record["versions"])
        elif record["format"] != FORMAT:
            raise ValueError(f"format {record['format']}, this version of rti reads {FORMAT}")
        elif found := differences(record["identity"], identity):
            raise ConfigError(
                f"--out {self.path.parent}: the trials in there are of another evaluation: "
                f"{'; '.join(found)}. Change it back, or choose another --out."
            )


def _opened(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+b")
    except OSError as error:
        raise ConfigError(
            f"--out {path.parent}: {error.strerror}. Name a folder that can be written into."
        ) from error


def _lock(file: IO[bytes], folder: Path) -> None:
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ConfigError(
            f"--out {folder}: another rti eval is at work there. Wait for it, or choose another "
            "folder."
        ) from error
