"""What tests of `rti doctor` share: the command at its front door, and its findings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rti.cli import main

FAULTS = Path(__file__).with_name("doctor_plugins.py")
RECIPES = Path(__file__).parents[1] / "recipes"
Capture = pytest.CaptureFixture[str]


def doctor(capsys: Capture, config: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and findings; a traceback never comes out."""
    few = ["--tasks", "4", "--forks", "1"]
    code = main(["--plugin", str(FAULTS), "doctor", str(config), "--json", *few, *words])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    record = json.loads(said.out)
    levels = [f["level"] for f in record["findings"]]
    assert record["ok"] is ("error" not in levels)
    assert record["counts"] == {n: levels.count(n) for n in ("ok", "note", "warning", "error")}
    assert code == (0 if record["ok"] else 1)
    return code, record["findings"]


def one(findings: list[dict[str, Any]], check: str, section: str = "") -> dict[str, Any]:
    """The one finding of a check."""
    [found] = [f for f in findings if f["check"] == check and section in ("", f["section"])]
    return found


def sets(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]
