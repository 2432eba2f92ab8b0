"""The page of results: every figure from a stored comparison, every verdict from an interval."""

from __future__ import annotations

import json

import pytest

from rti.cli import main
from rti.compare import mean_interval
from rti_pocket.results import page

CLAIM = """
[[claim]]
title = "RTI learns more"
article = "35 to 61"
file = "lab"
first = "rti"
second = "grpo"
expect = "{expect}"
because = "Turns are short."
"""


def arm(values, seeds):
    mean, low, high = mean_interval(values)
    return {
        "seeds": seeds,
        "planned": seeds,
        "pass@1": {"mean": mean, "low": low, "high": high, "seeds": values},
        "tokens": {"mean": 87067.0, "low": 1.0, "high": 2.0, "seeds": [87067.0] * len(seeds)},
    }


def stored(folder, rti, grpo=(0.1, 0.0, 0.2, 0.1, 0.1), expect="above"):
    seeds = [1, 2, 3, 4, 5][: len(rti)]
    gaps = [a - b for a, b in zip(rti, grpo, strict=False)]
    mean, low, high = mean_interval(gaps)
    lab = {
        "arms": {"grpo": arm(list(grpo[: len(rti)]), seeds), "rti": arm(list(rti), seeds)},
        "paired": {"rti-grpo": {"mean": mean, "low": low, "high": high, "seeds": gaps}},
        "cells": {},
        "method": "How.",
        "config": {"compare": {"seeds": seeds}},
    }
    (folder / "lab.json").write_text(json.dumps(lab), encoding="utf-8")
    (folder / "claims.toml").write_text(CLAIM.format(expect=expect), encoding="utf-8")
    return folder


CLEAR = (0.6, 0.5, 0.7, 0.6, 0.6)


@pytest.mark.parametrize(
    ("rti", "expect", "verdict"),
    [
        (CLEAR, "above", "yes"),
        (CLEAR, "below", "the opposite"),
        ((0.1, 0.3, 0.0, 0.2, 0.1), "above", "not shown"),
        (CLEAR[:4], "above", "open"),
    ],
)
def test_the_verdict_follows_from_the_interval(tmp_path, rti, expect, verdict):
    text = page(stored(tmp_path, rti, expect=expect))
    [row] = [line for line in text.splitlines() if line.startswith("| RTI learns more")]
    assert row.endswith(f"| {verdict} |")
    told = verdict in ("not shown", "the opposite")
    assert ("- *RTI learns more*: Turns are short." in text) is told


def test_figures_are_those_of_the_file(tmp_path):
    text = page(stored(tmp_path, CLEAR))
    assert "rti − grpo in pass@1: +0.50 (+0.50 to +0.50, 5 seeds)" in text
    assert "| rti | 0.600 ± 0.088 | 87,067 |" in text
    assert "| grpo | 0.100 | 0.000 | 0.200 | 0.100 | 0.100 |" in text


def test_a_claim_without_its_runs_is_open(tmp_path):
    stored(tmp_path, CLEAR)
    (tmp_path / "lab.json").rename(tmp_path / "other.json")
    assert "| not run yet | open |" in page(tmp_path)


def test_the_command_writes_and_checks(tmp_path, capsys):
    folder = stored(tmp_path, CLEAR)
    words = ["pocket", "results", "--folder", str(folder), "--out", str(tmp_path / "page.md")]
    assert main([*words, "--check"]) == 1
    assert main(words) == 0
    assert main([*words, "--check"]) == 0
    (folder / "claims.toml").write_text(CLAIM.format(expect="up"), encoding="utf-8")
    assert main(words) == 2
    assert '"above" or "below"' in capsys.readouterr().err
    (folder / "lab.json").write_text("{}", encoding="utf-8")
    (folder / "claims.toml").write_text(CLAIM.format(expect="above"), encoding="utf-8")
    assert main(words) == 1
    assert "no compare.json" in capsys.readouterr().err
