"""`rti pocket trials`: GRPO, RTI, and GRPO at RTI's tokens, from fresh warm starts."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rti import RunError
from rti.checkpoint import write_text
from rti.compare import mean_interval
from rti_pocket.quickstart import ARMS, Arm, arm_environment, read_events

EQUAL_TOKENS = "grpo-equal-tokens"
LOTTERY = 0.1
"""GRPO's final pass@1 on hard tasks from which a run counts as a lottery win: one rare success took
off. Fixed beforehand; such runs are counted and never left out."""
NO_END = 100_000
"""Steps of the run that its token budget ends."""


def add_trials(sub: Any) -> None:
    """Add the action to the sub-parsers of `rti pocket`."""
    parser: argparse.ArgumentParser = sub.add_parser(
        "trials",
        help="compare GRPO and RTI over fresh warm starts",
        description="For every seed: a fresh warm start, then GRPO, RTI, and GRPO with as many "
        "tokens as RTI spent. Every run is reported. Two seeds at a time; an interrupted trial "
        "goes on where it was.",
    )
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/trials"), metavar="DIR")
    parser.add_argument("--recipes", type=Path, default=Path("recipes"), metavar="DIR")
    parser.add_argument("--jobs", type=int, default=2, help="seeds at a time (default 2)")
    parser.set_defaults(run=trials)


def trials(args: argparse.Namespace, registry: Any) -> int:
    """Run all seeds, write `trials.json`, and print the table."""
    with ThreadPoolExecutor(args.jobs) as pool:
        rows = dict(zip(args.seeds, pool.map(lambda s: _seed(args, s), args.seeds), strict=True))
    record = {"lottery": LOTTERY, "seeds": rows, "summary": _summary(list(rows.values()))}
    write_text(args.out / "trials.json", json.dumps(record, indent=2) + "\n")
    print(table(record))
    print(f"\nNumbers: {args.out / 'trials.json'}")
    return 0


def _seed(args: argparse.Namespace, seed: int) -> dict[str, Mapping[str, float]]:
    base = args.out / f"base-{seed}"
    if not (base / "tokenizer.json").is_file():  # written last
        _rti(
            base.parent, f"base-{seed}", ["pocket", "warm-start", f"--seed={seed}", f"--out={base}"]
        )
    found: dict[str, Mapping[str, float]] = {}
    for arm, recipe in ARMS.items():
        found[arm] = _train(args, seed, arm, recipe, [])
    budget = int(found["rti"]["tokens"])
    found[EQUAL_TOKENS] = _train(
        args,
        seed,
        EQUAL_TOKENS,
        ARMS["grpo"],
        [f"run.token_budget={budget}", f"run.steps={NO_END}"],
    )
    return found


def _train(
    args: argparse.Namespace, seed: int, arm: str, recipe: str, more: Sequence[str]
) -> Mapping[str, float]:
    out = args.out / f"{arm}-{seed}"
    options = [
        f"run.out={out}",
        f"run.seed={seed}",
        f"model.path={args.out / f'base-{seed}'}",
        *more,
    ]
    command = ["train", str(args.recipes / recipe), "--resume"]
    for option in options:
        command += ["--set", option]
    if not any(e["event"] == "RunEnded" and e["status"] == "done" for e in read_events(out)):
        _rti(args.out, f"{arm}-{seed}", command)
    summary = Arm(arm, tuple(read_events(out))).summary()
    print(
        f"seed {seed}  {arm}: pass@1 {summary['pass@1']:.3f}, {summary['steps']:.0f} steps, "
        f"{summary['tokens']:,.0f} tokens, {summary['seconds']:.0f} s",
        flush=True,
    )
    return summary


def _rti(folder: Path, name: str, command: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    with log.open("a", encoding="utf-8") as file:
        done = subprocess.run(  # noqa: S603 - our own interpreter, our own arguments
            [sys.executable, "-m", "rti", *command],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=arm_environment(),
            check=False,
        )
    if done.returncode:
        raise RunError(f"rti {' '.join(command)} ended with exit code {done.returncode}: see {log}")


def _summary(rows: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    def of(arm: str, key: str) -> list[float]:
        return [row[arm][key] for row in rows]

    def wins(arm: str) -> int:
        return sum(value >= LOTTERY for value in of(arm, "pass@1"))

    gain = [row["rti"]["pass@1"] - row["grpo"]["pass@1"] for row in rows]
    level = [row["rti"]["pass@1"] - row[EQUAL_TOKENS]["pass@1"] for row in rows]
    probe = [1 - r["rti"]["probe_ppl_last"] / r["rti"]["probe_ppl_first"] for r in rows]
    return {
        "rti_pass@1_median": statistics.median(of("rti", "pass@1")),
        "rti_pass@8_median": statistics.median(of("rti", "pass@8")),
        "grpo_pass@1_median": statistics.median(of("grpo", "pass@1")),
        "rti_minus_grpo": gain,
        "rti_minus_grpo_interval": mean_interval(gain),
        "rti_minus_grpo_equal_tokens": level,
        "rti_minus_grpo_equal_tokens_interval": mean_interval(level),
        "probe_ppl_fall": probe,
        "grpo_lottery_wins": wins("grpo"),
        "grpo_equal_tokens_lottery_wins": wins(EQUAL_TOKENS),
    }


_COLUMNS = (
    ("base", "base_pass@1", "{:.3f}"),
    ("pass@1", "pass@1", "{:.3f}"),
    ("pass@8", "pass@8", "{:.3f}"),
    ("pass^8", "pass^8", "{:.3f}"),
    ("easy", "easy_pass@1", "{:.3f}"),
    ("all failed first", "all_failed_first", "{:.1f}"),
    ("last", "all_failed_last", "{:.1f}"),
    ("probe PPL first", "probe_ppl_first", "{:.2f}"),
    ("last", "probe_ppl_last", "{:.2f}"),
    ("steps", "steps", "{:.0f}"),
    ("tokens", "tokens", "{:,.0f}"),
    ("s", "seconds", "{:.0f}"),
)


def table(record: Mapping[str, Any]) -> str:
    """All runs as a Markdown table."""
    lines = [
        "| seed | arm | " + " | ".join(label for label, _, _ in _COLUMNS) + " |",
        "|---|---|" + "---|" * len(_COLUMNS),
    ]
    for seed, arms in record["seeds"].items():
        for arm, row in arms.items():
            cells = " | ".join(form.format(row[key]) for _, key, form in _COLUMNS)
            lines.append(f"| {seed} | {arm} | {cells} |")
    return "\n".join(lines)
