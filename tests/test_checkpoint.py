"""Checkpoints: whole or not there at all."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest

from rti import RunError, checkpoint
from rti.checkpoint import State, clean, latest, read_state, replacing, save, write_text


def writes(text, name="weights.bin"):
    def write(folder):
        (folder / "model").mkdir()
        (folder / "model" / name).write_text(text)

    return write


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_checkpoint_is_read_back(tmp_path):
    state = State(7, 5, 3, tokens=12.5, seconds=0.25, evaluated=6)
    path = save(tmp_path / "run" / "checkpoints", state, writes("w"), keep=2)
    assert path == tmp_path / "run" / "checkpoints" / "step-000007"
    assert names(path) == ["model", "state.json"]
    assert (path / "model" / "weights.bin").read_text() == "w"
    assert read_state(path) == state
    assert latest(tmp_path / "run" / "checkpoints") == path


def test_the_newest_are_kept(tmp_path):
    for step in (1, 2, 9, 10):
        save(tmp_path, State(step), writes(str(step)), keep=2)
    assert names(tmp_path) == ["step-000009", "step-000010"]
    assert latest(tmp_path).name == "step-000010"
    save(tmp_path, State(11), writes("11"), keep=1)
    assert names(tmp_path) == ["step-000011"]


def test_there_may_be_none(tmp_path):
    assert latest(tmp_path) is None
    assert latest(tmp_path / "nowhere") is None


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_last_checkpoint_and_no_rest(tmp_path, error):
    save(tmp_path, State(1), writes("1"), keep=1)

    def fails(folder):
        (folder / "half.bin").write_text("half")
        raise error

    with pytest.raises(type(error)):
        save(tmp_path, State(2), fails, keep=1)
    assert names(tmp_path) == ["step-000001"]
    assert latest(tmp_path).name == "step-000001"


def killed_while(work):
    """Run `work(die)` in a process that SIGKILLs itself when it calls `die()`."""
    pid = os.fork()
    if pid == 0:
        work(lambda: os.kill(os.getpid(), signal.SIGKILL))
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)


def test_a_kill_while_writing_leaves_the_last_checkpoint(tmp_path):
    save(tmp_path, State(1), writes("1"), keep=1)

    def work(die):
        def write(folder):
            (folder / "half.bin").write_text("half")
            die()

        save(tmp_path, State(2), write, keep=1)

    killed_while(work)
    rests = [name for name in names(tmp_path) if name.startswith(".writing-")]
    assert len(rests) == 1
    # Somebody who only reads (`rti eval` of a run that goes on) leaves alone what is being written.
    assert latest(tmp_path).name == "step-000001"
    assert names(tmp_path) == [*rests, "step-000001"]
    clean(tmp_path)
    assert names(tmp_path) == ["step-000001"]


def test_a_kill_while_a_file_is_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "events.jsonl"
    write_text(path, "old")

    def work(die):
        with replacing(path) as file:
            file.write(b"half")
            die()

    killed_while(work)
    assert path.read_text() == "old"
    assert len(names(tmp_path)) == 2
    clean(tmp_path)
    assert names(tmp_path) == ["events.jsonl"]


def test_letters_that_utf8_does_not_have_are_escaped(tmp_path):
    write_text(tmp_path / "x.json", json.dumps("no \udce9 ü", ensure_ascii=False))
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == "no \udce9 ü"


def test_a_kill_while_the_state_is_written_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    save(tmp_path, State(1), writes("1"), keep=1)

    def work(die):
        monkeypatch.setattr(checkpoint, "_sync", lambda path: die())
        save(tmp_path, State(2), writes("2"), keep=1)

    killed_while(work)
    assert latest(tmp_path).name == "step-000001"


def test_a_kill_while_an_old_one_is_removed_leaves_only_whole_ones(tmp_path, monkeypatch):
    save(tmp_path, State(1), writes("1"), keep=1)

    def work(die):
        def half(path, *_, **__):
            (next(path.rglob("weights.bin"))).unlink()
            die()

        monkeypatch.setattr(shutil, "rmtree", half)
        save(tmp_path, State(2), writes("2"), keep=1)

    killed_while(work)
    whole = [p for p in tmp_path.glob("step-*") if (p / "state.json").is_file()]
    assert all((p / "model" / "weights.bin").is_file() for p in whole)
    assert latest(tmp_path).name == "step-000002"
    clean(tmp_path)
    assert names(tmp_path) == ["step-000002"]


def test_the_same_step_again_keeps_the_first(tmp_path):
    save(tmp_path, State(3), writes("first"), keep=2)
    path = save(tmp_path, State(3), writes("second"), keep=2)
    assert (path / "model" / "weights.bin").read_text() == "first"
    assert names(tmp_path) == ["step-000003"]


def test_a_folder_that_is_no_checkpoint_is_not_taken_for_one(tmp_path):
    (tmp_path / "step-000003").mkdir()
    (tmp_path / "step-000003" / "notes.txt").write_text("x")
    assert latest(tmp_path) is None
    path = save(tmp_path, State(3), writes("w"), keep=2)
    assert read_state(path).step == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is no checkpoint that can be read"),
        ("", "is no checkpoint that can be read"),
        ('{"step": 1', "is no checkpoint that can be read"),
        ('{"step": 1, "colour": "red"}', "is no checkpoint that can be read"),
        ("[1, 2]", "is no checkpoint that can be read"),
        (json.dumps({"step": 1, "format": 99}), "has checkpoint format 99; this version of rti"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_so(tmp_path, text, message):
    if text is not None:
        (tmp_path / "state.json").write_text(text)
    with pytest.raises(RunError, match=message):
        read_state(tmp_path)


def test_text_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "config.toml"
    write_text(path, "one")
    write_text(path, "δ = ∞")
    assert path.read_text(encoding="utf-8") == "δ = ∞"

    def breaks():
        with replacing(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        breaks()
    assert path.read_text(encoding="utf-8") == "δ = ∞"
    assert names(path.parent) == ["config.toml"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_checkpoints_are_readable_by_others(tmp_path):
    path = save(tmp_path, State(1), writes("1"), keep=1)
    assert path.stat().st_mode & 0o777 == 0o755
