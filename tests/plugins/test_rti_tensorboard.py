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


def test_a_resumed_run_leaves_no_stale_points(tmp_path):
    killed = reporter(tmp_path)
    for n in range(4):
        killed.report(StepDone(n, n + 1, {"pass@1": 0.1}, "."))
    killed.close()
    resumed = reporter(tmp_path)
    resumed.rewind(2)  # the checkpoint behind two steps
    for n in (2, 3):
        resumed.report(StepDone(n, n + 1, {"pass@1": 0.9}, "."))
    resumed.close()
    assert points(read(tmp_path), "train/pass@1") == [(1, 0.1), (2, 0.1), (3, 0.9), (4, 0.9)]


def test_a_real_run_writes_them(pocket_toml, tmp_path):
    sets = ["run.steps=1", "eval.every=1", 'reporter.use=["tensorboard"]']
    command = ["train", str(pocket_toml)]
    for one in sets:
        command += ["--set", one]
    assert main(command) == 0
    found = read(tmp_path / "run")
    assert {"train/pass@1", "train/tokens", "eval/pass@1"} <= set(found.Tags()["scalars"])
