"""The commands that work on a config, through the front door."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra hf")

from rti.cli import main

SMALL = ["--set", "environment.test_tasks=2", "--set", "eval.trials=2"]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(w) for w in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_train_then_eval_its_checkpoint(
    pocket_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "train", pocket_toml, "--set", "run.steps=1",
                       "--set", "reporter.use=['console', 'jsonl']")  # fmt: skip
    assert code == 0
    assert "step 1/1" in out
    assert "done after 1 steps" in out
    folder = tmp_path / "eval"
    code, out, _ = run(capsys, "eval", pocket_toml, "--set", "run.steps=1", *SMALL,
                       "--checkpoint", tmp_path / "run", "--out", folder)  # fmt: skip
    assert code == 0
    what, _, header = out.splitlines()[:3]
    assert what.startswith("run/step-000001 on pocket")
    assert header.split() == ["family", "tasks", "pass@1", "pass@2", "pass^2"]
    record = json.loads((folder / "eval.json").read_text(encoding="utf-8"))
    assert record["checkpoint"].endswith("step-000001")
    assert record["trials"] == 2
    assert len(record["tasks"]) == 16
    mean = sum(map(sum, record["tasks"].values())) / 32
    assert record["metrics"]["pass@1"] == pytest.approx(mean)


def test_eval_of_what_is_no_checkpoint(
    pocket_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "eval", pocket_toml, "--checkpoint", tmp_path)
    assert code == 2
    assert "neither a checkpoint nor a run with one" in err
    assert "Traceback" not in err


def test_eval_of_families(pocket_toml: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "eval", pocket_toml, *SMALL, "--json",
                       "--set", "eval.families=['AH', 'A3']")  # fmt: skip
    assert code == 0
    assert set(json.loads(out)["families"]) == {"AH", "A3"}
    code, _, err = run(capsys, "eval", pocket_toml, "--set", "eval.families=['AX']")
    assert code == 2
    assert "no task is of family 'AX'" in err


def test_intervene_shows_each_look(pocket_toml: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["intervene", pocket_toml, "--task", "AH-train-0", "--set", "rollout.max_new_tokens=40",
             "--set", "gate.delta=inf", "--set", "verifier.use=[]"]  # fmt: skip
    code, out, _ = run(capsys, *words, "--json")
    assert code == 0
    record = json.loads(out)
    assert record["task"] == "AH-train-0"
    weighed = [look for look in record["interventions"] if look["weights"]]
    assert weighed, "with no verifier and no gate some correction must be admitted"
    for look in weighed:
        assert len(look["weights"]) == len(look["tokens"])
        assert look["perplexity"] >= 1
        assert look["draft"]
        assert look["correction"]
        assert look["provenance"]["plugin"] == "self"
    code, out, _ = run(capsys, *words)
    assert code == 0
    for shown in ("draft", "correction", "diagnosis", "PPL", "≤ inf", "weights", "outcome"):
        assert shown in out


def test_intervene_where_every_rollout_is_lost_is_no_zero(
    pocket_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "dead.py"
    plugin.write_text(
        "from attrs import frozen\nfrom rti import hookimpl\n"
        "from rti_pocket.environment import PocketEnvironment\n"
        "@frozen\nclass Dead(PocketEnvironment):\n"
        "    async def start(self, task):\n        return 1 / 0\n"
        "@hookimpl\ndef rti_environments():\n    return {'dead': Dead}\n"
    )
    code, out, err = run(capsys, "--plugin", plugin, "intervene", pocket_toml,
                         "--set", "environment.use=dead")  # fmt: skip
    assert (code, out) == (1, "")
    assert "was dropped" in err
    assert "ZeroDivisionError" in err


def test_intervene_on_a_task_that_is_none(
    pocket_toml: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "intervene", pocket_toml, "--task", "AH-train-O")
    assert code == 2
    assert "Did you mean" in err
    assert "AH-train-0" in err


def test_warm_start_writes_a_model_that_can_be_used(
    pocket_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "base"
    code, _, _ = run(capsys, "pocket", "warm-start", "--seed", 1, "--steps", 2, "--out", base)
    assert code == 0
    code, out, _ = run(capsys, "eval", pocket_toml, *SMALL, "--set", f"model.path={base}", "--json")
    assert code == 0
    assert json.loads(out)["model"] == str(base)


@pytest.mark.slow
def test_quick_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipes = Path(__file__).parents[1] / "recipes"
    words = ["pocket", "quickstart", "--out", tmp_path, "--recipes", recipes, "--steps", 2]
    code, out, _ = run(capsys, *words)
    assert code == 0
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert set(summary) == {"grpo", "rti"}
    for arm in summary.values():
        assert {"pass@1", "pass@8", "pass^8", "easy_pass@1", "all_failed_first",
                "all_failed_last", "seconds", "tokens"} <= set(arm)  # fmt: skip
    assert "pass@8" in out
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def test_quick_start_without_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "pocket", "quickstart", "--recipes", tmp_path)
    assert code == 2
    assert "Run it from a clone" in err


def test_the_documented_task_has_a_repair_that_succeeds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = Path(__file__).parents[1] / "recipes" / "pocket-rti.toml"
    code, out, _ = run(capsys, "intervene", recipe, "--task", "AH-train-12")
    assert code == 0
    assert "succeeded, entered the group" in out
    assert "vetoed (leaks: id 'k33' in direction)" in out
    code, out, _ = run(capsys, "intervene", recipe, "--task", "AH-train-12",
                       "--set", "gate.delta=2")  # fmt: skip
    assert code == 0
    assert "succeeded" not in out


def test_resume_without_a_checkpoint_says_so(
    pocket_toml: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "train", pocket_toml, "--resume", "--set", "run.steps=1")
    assert code == 0
    assert "no checkpoint in" in out
