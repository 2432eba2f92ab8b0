"""TensorBoard files, read back by TensorBoard's own reader."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="needs the extra hf")
pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rti.cli import main
from rti.events import Evaluated, RunEnded, StepDone, TurnRepaired
from rti_reporters import TensorBoardReporter


def reporter(folder, **options):
    made = TensorBoardReporter(**options)
    made.bind(SimpleNamespace(out=folder))
    return made


def repaired(step, **more):
    return TurnRepaired(step, "AH-1", "AH", 0, 0, 1, "succeeded", "", **more)


def read(folder):
    found = EventAccumulator(str(folder / "tensorboard"), size_guidance={"histograms": 0})
    return found.Reload()


def points(found, tag):
    return [(p.step, pytest.approx(p.value)) for p in found.Scalars(tag)]


def test_steps_and_evaluations_share_an_axis(tmp_path):
    writer = reporter(tmp_path)
    writer.report(Evaluated(0, 0, {"pass@1": 0.25}, {"AH": {"pass@1": 0.0}}))
    writer.report(repaired(0, perplexity=3.0, weights=(0.8, 1.2)))
    writer.report(repaired(0, perplexity=math.inf))
    writer.report(StepDone(0, 1, {"pass@1": 0.5, "loss": math.nan}, "<b>1 of 4</b>"))
    writer.report(Evaluated(1, 1, {"pass@1": 0.75}))
    writer.report(RunEnded(1, "done", 1.0, 10.0))
    writer.report(object())
    writer.close()
    writer.close()
    found = read(tmp_path)
    assert points(found, "train/pass@1") == [(1, 0.5)]
    assert points(found, "eval/pass@1") == [(0, 0.25), (1, 0.75)]
    assert points(found, "eval/AH/pass@1") == [(0, 0.0)]
    assert "train/loss" not in found.Tags()["scalars"]
    [ppl], [weights] = found.Histograms("repaired/ppl"), found.Histograms("repaired/weights")
    assert (ppl.histogram_value.num, weights.histogram_value.num) == (1, 2)
    [words] = found.Tensors("words/text_summary")
    assert words.tensor_proto.string_val[0] == b"    <b>1 of 4</b>"


def test_histograms_can_be_left_out(tmp_path):
    writer = reporter(tmp_path, histograms=False)
    writer.report(repaired(0, perplexity=3.0, weights=(0.8,)))
    writer.report(StepDone(0, 1, {"pass@1": 0.5}, "."))
    writer.close()
    assert read(tmp_path).Tags()["histograms"] == []


def tell_steps(writer, first, last, value):
    for n in range(first, last):
        writer.report(repaired(n, perplexity=3.0 + value, weights=(0.8,)))
        writer.report(StepDone(n, n + 1, {"pass@1": value}, f"said at {value}"))
        writer.report(Evaluated(n + 1, n + 1, {"pass@1": value}))


def everything(found):
    """(tag, step) of all that TensorBoard finds, with what texts say."""
    tags = found.Tags()
    shown = [(t, p.step) for t in tags["scalars"] for p in found.Scalars(t)]
    shown += [(t, p.step) for t in tags["histograms"] for p in found.Histograms(t)]
    texts = [(p.step, p.tensor_proto.string_val[0].decode().strip())
             for t in tags["tensors"] for p in found.Tensors(t)]  # fmt: skip
    return sorted(shown), sorted(texts)


def older(folder, second):
    """The newest file, as if it had been begun in that second: files are read by age."""
    [new] = [p for p in (folder / "tensorboard").iterdir() if ".000000000" not in p.name]
    return new.rename(new.with_name(f"events.out.tfevents.000000000{second}.here"))


@pytest.mark.parametrize("cut", [0, 1, 30])
def test_of_steps_that_a_resume_takes_back_nothing_is_left(tmp_path, cut):
    """After a kill in the middle of a record, and a second one behind the resume."""
    killed = reporter(tmp_path)
    tell_steps(killed, 0, 4, 0.1)
    killed.close()
    file = older(tmp_path, 1)
    file.write_bytes(file.read_bytes()[: -cut or None])
    (file.parent / f".{file.name}.half").write_bytes(file.read_bytes())  # a kill within a rewind
    for begins, value in ((2, 0.5), (3, 0.9)):
        resumed = reporter(tmp_path)
        resumed.rewind(begins)  # the checkpoint behind so many steps
        tell_steps(resumed, begins, 5, value)
        resumed.close()
        older(tmp_path, begins)
    shown, texts = everything(read(tmp_path))
    tags = ("eval/pass@1", "repaired/ppl", "repaired/weights", "train/pass@1")
    assert shown == sorted((tag, n) for tag in tags for n in range(1, 6))
    assert texts == [
        (1, "said at 0.1"), (2, "said at 0.1"), (3, "said at 0.5"),
        (4, "said at 0.9"), (5, "said at 0.9"),
    ]  # fmt: skip
    values = [0.1, 0.1, 0.5, 0.9, 0.9]
    assert points(read(tmp_path), "train/pass@1") == list(enumerate(values, 1))
    gone = reporter(tmp_path)
    gone.rewind(-1)  # killed before its first checkpoint
    assert list((tmp_path / "tensorboard").iterdir()) == []


def test_a_real_run_writes_them(pocket_toml, tmp_path):
    sets = ["run.steps=1", "eval.every=1", 'reporter.use=["tensorboard"]']
    command = ["train", str(pocket_toml)]
    for one in sets:
        command += ["--set", one]
    assert main(command) == 0
    found = read(tmp_path / "run")
    assert {"train/pass@1", "train/tokens", "eval/pass@1"} <= set(found.Tags()["scalars"])
