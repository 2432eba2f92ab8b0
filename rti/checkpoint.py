"""Checkpoints: whole or not there at all, and exact.

A checkpoint is a folder `step-000010`: the trainer's files and `state.json`. It is written under
another name and renamed when everything is on the disk, so that a run killed at any moment finds
only whole ones.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from attrs import asdict, frozen

from rti.errors import RunError

STATE = "state.json"
FORMAT = 1
WRITING = ".writing-"
"""How the names of what is not whole begin."""


@frozen
class State:
    """Where a run stands. Task order and randomness follow from seed and step, so these do."""

    step: int = 0
    """Steps done; the next one has this number."""
    policy_version: int = 0
    seed: int = 0
    tokens: float = 0.0
    seconds: float = 0.0
    evaluated: int = -1
    """The step of the last evaluation."""
    format: int = FORMAT


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write into, which takes the place of `path` in one go when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{WRITING}{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a file so that it is never seen half written.

    Half a surrogate pair, which UTF-8 does not have, becomes its escape (in JSON: itself again).
    """
    with replacing(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def save(folder: Path, state: State, write: Callable[[Path], None], keep: int) -> Path:
    """Write checkpoint `state.step` below `folder` and drop all but the newest `keep`.

    `write` puts the trainer's files into the folder it is given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step-{state.step:06d}"
    scratch = Path(tempfile.mkdtemp(dir=folder, prefix=WRITING))
    try:
        scratch.chmod(0o755)
        write(scratch)
        (scratch / STATE).write_text(json.dumps(asdict(state), indent=2), encoding="utf-8")
        for path in [*scratch.rglob("*")]:
            if path.is_file():
                path.chmod(0o644)  # some writers are stingier than the umask
                _sync(path)
        if final in _whole(folder):  # the same step again, e.g. a second interrupt: it is as good
            shutil.rmtree(scratch)
        else:
            if final.exists():  # of that name, but no checkpoint
                shutil.rmtree(final)
            scratch.rename(final)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    _sync(folder)
    for old in _whole(folder)[:-keep]:
        # Out of sight first: a kill in the middle of it must not leave what looks whole.
        going = Path(tempfile.mkdtemp(dir=folder, prefix=WRITING))
        old.rename(going / old.name)
        shutil.rmtree(going)
    return final


def latest(folder: Path) -> Path | None:
    """The newest whole checkpoint below `folder`. Reads only: a run may be writing there."""
    whole = _whole(folder)
    return whole[-1] if whole else None


def clean(folder: Path) -> None:
    """Remove what a killed run left unfinished. For the run that owns the folder alone."""
    for scratch in folder.glob(f"{WRITING}*"):
        if scratch.is_dir() and not scratch.is_symlink():
            shutil.rmtree(scratch, ignore_errors=True)
        else:
            scratch.unlink(missing_ok=True)


def read_state(checkpoint: Path) -> State:
    """The state a checkpoint was saved with.

    Raises:
        RunError: for a folder that is no checkpoint of this version of `rti`.
    """
    try:
        found = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
        state = State(**found)
    except (OSError, ValueError, TypeError) as error:
        raise RunError(
            f"{checkpoint} is no checkpoint that can be read ({error}). Name a folder "
            "RUN/checkpoints/step-NNNNNN, or start the run anew."
        ) from error
    if state.format != FORMAT:
        raise RunError(
            f"{checkpoint} has checkpoint format {state.format}; this version of rti reads "
            f"{FORMAT}. Continue it with the version that wrote it."
        )
    return state


def _whole(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("step-*") if (p / STATE).is_file())


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
