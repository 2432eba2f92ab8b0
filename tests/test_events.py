"""The page on events cannot drift from the events."""

from __future__ import annotations

import json
import re
from pathlib import Path

import attrs
import pytest

from rti import events
from rti.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "events.md").read_text(encoding="utf-8")
KINDS = [k for k in vars(events).values() if isinstance(k, type) and attrs.has(k)]


def section(name: str) -> str:
    found = re.search(rf"^## {re.escape(name)}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/events.md has no section {name}"
    return found.group(1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_every_field_of_every_event_is_told(kind: type) -> None:
    told = set(re.findall(r"`([^`]+)`", section(kind.__name__)))
    assert {f.name for f in attrs.fields(kind)} <= told


def test_every_metric_of_a_real_step_is_told(pocket_toml: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra hf")
    sets = ["run.steps=1", "eval.every=1", "eval.trials=1", 'reporter.use=["jsonl"]']
    assert main(["train", str(pocket_toml), *(w for s in sets for w in ("--set", s))]) == 0
    lines = (tmp_path / "run" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    said = [json.loads(line) for line in lines]
    [step] = [e for e in said if e["event"] == "StepDone"]
    told = set(re.findall(r"`([^`]+)`", section("Metrics of a step")))
    funnel = {f"funnel/{name}" for name in told}
    unread = {n for n in step["metrics"] if n.startswith("unparsed/")}
    assert set(step["metrics"]) - unread <= told | funnel
    evaluated = [e for e in said if e["event"] == "Evaluated"][-1]
    told = set(re.findall(r"`([^`]+)`", section("Evaluated")))
    known = told | {"made_up_values", "probe_ppl", "probe_ppl/AH", "probe_ppl/BH"}
    assert {n for n in evaluated["metrics"] if not n.startswith("pass")} <= known
    assert len(KINDS) == 6
