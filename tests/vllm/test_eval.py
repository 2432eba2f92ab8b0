"""`rti eval` of what a real vLLM server serves: stopped, and gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rti.cli import main

CONFIG = """
[run]
seed = 5
[model]
path = "{model}"
[environment]
use = "pocket"
[renderer]
use = "chatml"
[rollout]
max_turns = 3
max_new_tokens = 16
[eval]
tasks = 3
trials = 2
temperature = 0
[policy]
use = "vllm"
base_urls = ["{url}"]
"""


@pytest.fixture
def recipe(policy: Any, folder: Path, tmp_path: Path) -> Path:
    [endpoint] = policy._remote.client.endpoints
    path = tmp_path / "run.toml"
    path.write_text(CONFIG.format(model=folder, url=endpoint.url), encoding="utf-8")
    return path


def trials(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    return [line for line in map(json.loads, lines) if line["record"] == "trial"]


def test_trials_are_kept_and_gone_on_with(recipe: Path, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert main(["eval", str(recipe), "--out", str(whole)]) == 0
    record = json.loads((whole / "eval.json").read_text(encoding="utf-8"))
    assert record["policy"].startswith("vLLM at")
    assert record["faults"] == {}
    assert [len(row) for row in record["tasks"].values()] == [2, 2, 2]
    assert None not in [success for row in record["tasks"].values() for success in row]
    assert record["usage"]["sampled_tokens"] >= 6

    # Stopped after half of them, with the next record half written.
    stopped.mkdir()
    lines = (whole / "trials.jsonl").read_bytes().splitlines(keepends=True)
    (stopped / "trials.jsonl").write_bytes(b"".join(lines[:-3]) + lines[-3][:20])
    assert main(["eval", str(recipe), "--out", str(stopped)]) == 0
    assert len(trials(stopped)) == 6
    assert trials(stopped)[:3] == trials(whole)[:3]
    again = json.loads((stopped / "eval.json").read_text(encoding="utf-8"))
    assert again["tasks"] == record["tasks"]
