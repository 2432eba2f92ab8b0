"""`rti eval` through the front door: resumable, refusing what is not its own, and its tables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra hf")

from rti.cli import main
from rti.commands.eval import Progress
from rti.evaluate import Trial
from rti.evaluation.store import TrialStore

SMALL = ["--set", "environment.test_tasks=1", "--set", "eval.trials=4"]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(w) for w in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "trials.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def result(folder: Path) -> Any:
    return json.loads((folder / "eval.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A config, and an unbroken evaluation of it."""
    from fakes import POCKET

    folder = tmp_path_factory.mktemp("evaluated")
    recipe = folder / "pocket.toml"
    recipe.write_text(POCKET.replace("[run]", f'[run]\nout = "{folder / "run"}"'))
    assert main(["eval", str(recipe), *SMALL, "--out", str(folder / "whole")]) == 0
    return recipe, folder / "whole"


# --- the result -----------------------------------------------------------------------------


def test_the_result_says_what_it_rests_on(evaluated: tuple[Path, Path]) -> None:
    record = result(evaluated[1])
    assert record["ks"] == [1, 2, 4]
    assert list(record["counted"]) == [
        "pass@1", "pass@2", "pass^2", "all-of-2", "pass@4", "pass^4", "all-of-4",
    ]  # fmt: skip
    m = record["metrics"]
    assert m["pass^4"] <= m["pass^2"] <= m["pass@1"] <= m["pass@2"] <= m["pass@4"]
    for name, (low, high) in record["intervals"].items():
        assert low <= m[name] <= high
    assert set(record["counted"].values()) == {8}
    assert record["versions"]["rti-rl"]
    assert record["faults"] == {}
    for task, row in record["tasks"].items():
        mine = record["per_task"][task]
        assert (mine["n"], mine["c"], mine["faults"]) == (4, sum(row), 0)
        assert mine["pass@1"] == sum(row) / 4
        assert mine["all-of-2"] == float(row[0] and row[1])
    page = (evaluated[1] / "eval.md").read_text(encoding="utf-8")
    assert "8 tasks, n = 4 rollouts each at temperature 1, at most 4 turns, seed 3" in page
    assert "0 rollouts left out" in page
    assert "rti-rl" in page
    assert "| AH-test-0 | 4 |" in page


def test_every_trial_is_on_disk(evaluated: tuple[Path, Path]) -> None:
    kinds = [line["record"] for line in lines(evaluated[1])]
    assert kinds == ["evaluation", "session", *["trial"] * 32]


# --- killed, and run again ------------------------------------------------------------------


def test_killed_and_run_again_it_ends_with_the_matrix_of_an_unbroken_one(
    evaluated: tuple[Path, Path], tmp_path: Path
) -> None:
    recipe, whole = evaluated
    words = [sys.executable, "-m", "rti", "eval", str(recipe), *SMALL,
             "--set", "eval.at_once=4", "--out", str(tmp_path)]  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    trials = tmp_path / "trials.jsonl"
    until = time.monotonic() + 300
    while not trials.exists() or trials.read_bytes().count(b"\n") < 12:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = [line for line in lines(tmp_path) if line["record"] == "trial"]
    assert 10 <= len(kept) < 32
    assert not (tmp_path / "eval.json").exists()
    with trials.open("ab") as file:
        file.write(b'{"record": "trial", "task": "AH-te')  # as if killed while writing
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert f"going on: {len(kept)} of 32 trials are done already" in done.stderr
    assert "32/32 trials" in done.stderr
    assert result(tmp_path)["tasks"] == result(whole)["tasks"]
    assert result(tmp_path)["metrics"] == pytest.approx(result(whole)["metrics"], rel=1e-4)
    after = [line for line in lines(tmp_path) if line["record"] == "trial"]
    assert after[: len(kept)] == kept, "what was finished is not played again"
    assert len(after) == 32


def test_more_trials_go_on_from_fewer(
    evaluated: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, whole = evaluated
    few = [*SMALL, "--set", "eval.trials=2", "--out", tmp_path]
    assert run(capsys, "eval", recipe, *few)[0] == 0
    code, _, err = run(capsys, "eval", recipe, *SMALL, "--out", tmp_path)
    assert code == 0
    assert "going on: 16 of 32" in err
    assert result(tmp_path)["tasks"] == result(whole)["tasks"]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("run.seed=4", "[run] seed was 3 and is 4"),
        ("eval.temperature=0.5", "[eval] temperature was 1.0 and is 0.5"),
        ("eval.tasks=3", "[tasks] ids was"),
        ("environment.seed=1", "[environment] seed was 0 and is 1"),
        ("rollout.max_turns=3", "[rollout] max_turns was 4 and is 3"),
    ],
)
def test_trials_of_another_evaluation_are_refused(
    override: str, says: str, evaluated: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, whole = evaluated
    before = (whole / "trials.jsonl").read_bytes()
    code, _, err = run(capsys, "eval", recipe, *SMALL, "--set", override, "--out", whole)
    assert code == 2
    assert "the trials in there are of another evaluation" in err
    assert says in err
    assert "choose another --out" in err
    assert (whole / "trials.jsonl").read_bytes() == before


def test_other_weights_under_the_same_name_are_refused(
    evaluated: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rti.folders import model_folder

    recipe, _ = evaluated
    base, model = model_folder("rti_pocket:base"), tmp_path / "model"
    model.mkdir()
    for file in base.iterdir():
        if file.is_file():
            (model / file.name).write_bytes(file.read_bytes())
    words = ["eval", recipe, *SMALL, "--set", "eval.trials=1", "--set", f"model.path={model}",
             "--out", tmp_path / "out"]  # fmt: skip
    assert run(capsys, *words)[0] == 0
    weights = model / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(raw)
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "[model] weights was 'model" in err


def test_two_at_once_and_broken_lines_are_refused(
    evaluated: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, _ = evaluated
    with TrialStore.opened(tmp_path, {}, {}):
        code, _, err = run(capsys, "eval", recipe, *SMALL, "--out", tmp_path)
    assert code == 2
    assert "another rti eval is at work there" in err
    (tmp_path / "trials.jsonl").write_text("nonsense\n")
    code, _, err = run(capsys, "eval", recipe, *SMALL, "--out", tmp_path)
    assert code == 1
    assert "trials.jsonl:1 cannot be read" in err


def test_a_folder_that_cannot_be_made_says_so(
    evaluated: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = run(capsys, "eval", evaluated[0], *SMALL, "--out", tmp_path / "file" / "out")
    assert code == 2
    assert "Name a folder that can be written into" in err


def test_a_fault_in_letters_that_utf8_does_not_have_is_kept(tmp_path: Path) -> None:
    lost = Trial("a", 0, fault="no reading \udce9")
    with TrialStore.opened(tmp_path, {}, {}) as store:
        store.append(lost)
    with TrialStore.opened(tmp_path, {}, {}) as store:
        assert list(store.trials.values()) == [lost]


def test_a_trial_lost_to_a_fault_is_played_again(tmp_path: Path) -> None:
    with TrialStore.opened(tmp_path, {"run": {"seed": 1}}, {"rti-rl": "1"}) as store:
        store.append(Trial("a", 0, True, 1.0))
        store.append(Trial("a", 1, fault="server down"))
    with TrialStore.opened(tmp_path, {"run": {"seed": 1}}, {"rti-rl": "2"}) as store:
        assert store.whole == [Trial("a", 0, True, 1.0)]
        assert store.versions == [{"rti-rl": "1"}, {"rti-rl": "2"}]
        store.append(Trial("a", 1, True, 1.0))
    with TrialStore.opened(tmp_path, {"run": {"seed": 1}}, {"rti-rl": "2"}) as store:
        assert len(store.whole) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["eval"], "name a CONFIG to evaluate, or --table RESULT"),
        (["eval", "x.toml", "--out", "eval.json"], "--out eval.json: name a folder"),
        (["eval", "x.toml", "--metric", "pass@1"], "--metric is for --table"),
        (["eval", "x.toml", "--table", "y"], "--table evaluates nothing"),
    ],
)
def test_what_does_not_go_together_says_so(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *words)
    assert code == 2
    assert says in err


def test_progress_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    progress = Progress(5, [Trial("a", 0, True)], clock=lambda: now)
    for seconds, trial in ((4.0, Trial("a", 1)), (12.0, Trial("a", 2, fault="down")),
                           (13.0, Trial("a", 3, True)), (14.0, Trial("a", 4, True))):  # fmt: skip
        now = seconds
        progress.finished(trial)
    assert capsys.readouterr().err.splitlines() == [
        "eval: going on: 1 of 5 trials are done already",
        "eval: 3/5 trials, 0.50 succeeded, 1 faults, ETA 12 s",
        "eval: 5/5 trials, 0.75 succeeded, 1 faults, ETA 0 s",
    ]


# --- side by side ---------------------------------------------------------------------------


def stored(folder: Path, **changes: Any) -> Path:
    """A made-up result: only what a table looks at."""
    record = {
        "format": 1,
        "method": "base",
        "benchmark": "desk/test",
        "trials": 4,
        "temperature": 1.0,
        "max_turns": 8,
        "seed": 0,
        "versions": {"rti-rl": "0.1.0"},
        "identity": {"environment": {"use": "desk"}, "tasks": {"number": 2, "ids": "a"}},
        "metrics": {"pass@1": 0.5, "pass^4": 0.25},
        "intervals": {"pass@1": [0.25, 0.75], "pass^4": [0.0, 0.5]},
        "counted": {"pass@1": 2, "pass^4": 2},
        "tasks": {"t1": [True, None], "t2": [False, False]},
        "faults": {},
        **changes,
    }
    folder.mkdir()
    (folder / "eval.json").write_text(json.dumps(record))
    return folder


def test_a_table_has_methods_as_rows_and_benchmarks_as_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = stored(tmp_path / "a")
    b = stored(tmp_path / "b", benchmark="map/test", faults={"down": 3},
               counted={"pass@1": 1, "pass^4": 1})  # fmt: skip
    c = stored(tmp_path / "c", trials=8, metrics={"pass@1": 0.9, "pass^4": 0.8})
    code, out, _ = run(capsys, "eval", "--table", a, b, f"ours={c / 'eval.json'}",
                       "--metric", "pass@1", "--metric", "pass^4",
                       "--out", tmp_path / "t")  # fmt: skip
    assert code == 0
    assert "| method | desk/test | map/test |" in out
    assert "| base | 50.0 [25.0, 75.0] | 50.0 [25.0, 75.0] |" in out
    assert "| ours | 90.0 [25.0, 75.0] | – |" in out
    assert "**pass^4** in %" in out
    assert "- desk/test: 2 tasks, n = 4 or 8 trials each" in out
    assert "- desk/test: results differ in trials: 4 (base); 8 (ours)" in out
    assert "map/test, base: 3 trials lost to infrastructure faults are left out, and with them 1 " \
        "tasks of too few trials" in out  # fmt: skip
    [first, _] = json.loads((tmp_path / "t" / "table.json").read_text())
    assert first["rows"]["ours"]["desk/test"]["value"] == 0.9
    assert (tmp_path / "t" / "table.md").read_text().strip() in out.replace("\r", "")


def test_a_table_of_real_results(
    evaluated: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "eval", "--table", evaluated[1], "--metric", "pass@4")
    assert code == 0
    assert "| rti_pocket:base |" in out
    assert "pocket test_tasks=1/test" in out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"identity": {"environment": {"use": "desk"}, "tasks": {"number": 3, "ids": "b"}},
          "method": "x"}, "but not on the same tasks: [tasks] ids was 'a' and is 'b'"),
        ({}, "are both 'base' on desk/test: name one of them, as in --table 'ours="),
        ({"method": "x", "counted": {"pass@2": 1}}, "--metric pass@1: "),
        ({"format": 7}, "has format 7"),
    ],
)  # fmt: skip
def test_a_table_of_what_cannot_be_compared_is_refused(
    change: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = stored(tmp_path / "a"), stored(tmp_path / "b", **change)
    code, _, err = run(capsys, "eval", "--table", a, b)
    assert code == 2
    assert says in err


def test_what_is_no_result_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "eval", "--table", tmp_path)
    assert code == 2
    assert "has no result until it is run again" in err
    (tmp_path / "eval.json").write_text("{}")
    code, _, err = run(capsys, "eval", "--table", tmp_path)
    assert code == 2
    assert "is no result of `rti eval --out FOLDER`" in err
