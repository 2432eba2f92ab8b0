"""`rti eval CONFIG`: pass@1, pass@k and pass^k of a policy, without intervention."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rti.commands import add_config_arguments

if TYPE_CHECKING:
    from rti.assemble import Run
    from rti.evaluate import Evaluation
    from rti.registry import Registry


def configure(parser: argparse.ArgumentParser) -> None:
    """Fill the sub-parser of `rti eval`."""
    parser.description = (
        "Evaluate the policy of a config on [eval] split: pass@1, pass@k and pass^k with [eval] "
        "trials rollouts a task. Evaluation never intervenes."
    )
    add_config_arguments(parser)
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="PATH",
        help="evaluate these weights: a checkpoint, or a run's folder for its newest one "
        "(default: the weights of [model] path)",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON into this file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, registry: Registry) -> int:
    """Evaluate and print."""
    from rti.assemble import assemble
    from rti.checkpoint import write_text
    from rti.config import load_config
    from rti.engine import checkpoint_to_read

    config = load_config(args.config, args.set)
    checkpoint = checkpoint_to_read(args.checkpoint) if args.checkpoint else None
    made = assemble(config, registry, trains=checkpoint is not None)
    result = asyncio.run(_evaluate(made, checkpoint))
    record = as_json(made, result, checkpoint)
    text = json.dumps(record, indent=2, ensure_ascii=False)
    if args.out:
        write_text(args.out, text + "\n")
    print(text if args.json else as_table(record))
    return 0


async def _evaluate(made: Run, checkpoint: Path | None) -> Evaluation:
    from rti.checkpoint import read_state
    from rti.engine import evaluate_run

    try:
        if checkpoint is not None:
            assert made.trainer is not None
            made.trainer.restore(checkpoint)
            await made.policy.load(made.trainer.weights(), read_state(checkpoint).policy_version)
        return await evaluate_run(made)
    finally:
        await made.close()


def as_json(made: Run, result: Evaluation, checkpoint: Path | None) -> dict[str, Any]:
    """An evaluation with what it takes to repeat it."""
    from rti.engine import versions

    at = made.config.eval
    return {
        "environment": made.config.environment.use,
        "split": at.split,
        "trials": at.trials,
        "temperature": at.temperature,
        "seed": made.config.run.seed,
        "model": made.config.model.path,
        "checkpoint": str(checkpoint) if checkpoint else None,
        "policy_version": result.policy_version,
        "versions": versions(),
        "metrics": dict(result.metrics),
        "families": {k: dict(v) for k, v in result.by_family.items()},
        "tasks": {task: list(row) for task, row in result.successes.items()},
        "task_families": dict(result.families),
    }


def as_table(record: dict[str, Any]) -> str:
    """The same for people: a row a family, then all."""
    names = [n for n in record["metrics"] if n.startswith("pass")]
    rows = [["family", "tasks", *names]]
    families = record["families"]
    for family, metrics in families.items():
        count = sum(f == family for f in record["task_families"].values())
        rows.append([family, str(count), *(_number(metrics.get(n)) for n in names)])
    every = [str(len(record["tasks"])), *(_number(record["metrics"].get(n)) for n in names)]
    rows.append(["all", *every])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            c.ljust(w) if i == 0 else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    m = record["metrics"]
    lines.append(
        f"\n{record['trials']} rollouts a task at temperature {record['temperature']:g}, "
        f"{m['turns']:.1f} turns a rollout, {m['truncated']:.0%} truncated, "
        f"{m['faults']:.0f} left out for infrastructure faults, "
        f"policy version {record['policy_version']}"
    )
    extra = {n: v for n, v in m.items() if "ppl" in n}
    lines += [f"{name}: {value:.3f}" for name, value in extra.items()]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
