"""The page of results: every figure from a stored comparison, every verdict from an interval."""

from __future__ import annotations

import json
import re

import pytest

from rti import ConfigError
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
        "cells": {
            f"{arm}-{seed}": {"metrics": {"pass@1": values[i]}, "curve": [[0, 0.0], [9, values[i]]]}
            for arm, values in (("grpo", grpo), ("rti", rti))
            for i, seed in enumerate(seeds)
        },
        "method": "How.",
        "versions": {"torch": "2.13.0"},
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


def test_a_seed_that_one_arm_alone_has_is_shown(tmp_path):
    stored(tmp_path, CLEAR)
    lab = json.loads((tmp_path / "lab.json").read_text(encoding="utf-8"))
    lab["config"]["compare"]["seeds"] = [1, 2, 3, 4]
    (tmp_path / "lab.json").write_text(json.dumps(lab), encoding="utf-8")
    assert "| pass@1 of each seed | 1 | 2 | 3 | 4 | 5 |" in page(tmp_path)


def test_a_figure_that_some_seeds_lack_says_of_how_many_it_is(tmp_path):
    stored(tmp_path, CLEAR)
    lab = json.loads((tmp_path / "lab.json").read_text(encoding="utf-8"))
    lab["arms"]["rti"]["pass@1"]["seeds"][2] = None
    (tmp_path / "lab.json").write_text(json.dumps(lab), encoding="utf-8")
    assert re.search(r"\| rti \| 0\.600 ± \S+ \(4 of 5\) \|", page(tmp_path))


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


def test_a_claim_may_be_about_the_course_of_the_runs(tmp_path):
    folder = stored(tmp_path, CLEAR)
    claim = (
        CLAIM.format(expect="below")
        .replace('second = "grpo"', 'second = "rti"')
        .replace("because", 'metric = "last mean_ppl"\nagainst = "{against}"\nbecause')
    )
    lab = json.loads((folder / "lab.json").read_text(encoding="utf-8"))
    for seed in range(1, 6):
        lab["cells"][f"rti-{seed}"] |= {
            "train": {"mean_ppl": [4.0 + seed / 10, 2.0]},
            "before": {"probe_ppl": 5.0 + seed / 10},
        }

    def judged(against):
        (folder / "lab.json").write_text(json.dumps(lab), encoding="utf-8")
        (folder / "claims.toml").write_text(claim.format(against=against), encoding="utf-8")
        text = page(folder)
        return next(row for row in text.splitlines() if row.startswith("| RTI learns more"))

    row = judged("first mean_ppl")
    assert "rti, last mean_ppl − first mean_ppl: −2.30 (" in row
    assert row.endswith("| yes |")
    assert "last mean_ppl − before probe_ppl: −3.30 (" in judged("before probe_ppl")
    lab["cells"]["rti-5"]["train"]["mean_ppl"][1] = None  # no turn was intervened on at the end
    assert "| 4 paired seeds only | open |" in judged("first mean_ppl")

    with pytest.raises(ConfigError, match=r"arm 'rti' has no metric 'ppl'; it has mean_ppl"):
        judged("first ppl")


def test_what_a_larger_comparison_holds_is_not_shown_twice(tmp_path):
    lab = json.loads((stored(tmp_path, CLEAR) / "lab.json").read_text(encoding="utf-8"))
    del lab["arms"]["rti"], lab["paired"]["rti-grpo"]
    lab["cells"] = {name: row for name, row in lab["cells"].items() if name.startswith("grpo")}
    (tmp_path / "core.json").write_text(json.dumps(lab), encoding="utf-8")
    assert "## core\n\nIts runs are those of [lab](#lab)." in page(tmp_path)
    lab["cells"]["grpo-1"]["metrics"]["pass@1"] = 0.11
    (tmp_path / "core.json").write_text(json.dumps(lab), encoding="utf-8")
    assert "Its runs are those" not in page(tmp_path)


def test_curves_are_means_over_seeds(tmp_path):
    text = page(stored(tmp_path, CLEAR))
    assert "| pass@1 after steps | 0 | 9 |\n|---|---|---|\n| grpo | 0.000 | 0.100 |" in text
    assert "| rti | 0.000 | 0.600 |" in text


def test_lottery_wins_are_counted(tmp_path):
    folder = stored(tmp_path, CLEAR)
    told = (
        CLAIM.format(expect="above") + '\n[lottery]\nfile = "lab"\narms = ["grpo"]\nlevel = 0.1\n'
    )
    (folder / "claims.toml").write_text(told, encoding="utf-8")
    assert "pass@1 ≥ 0.1" in page(folder)
    assert "grpo 4 of 5." in page(folder)
