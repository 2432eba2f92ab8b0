"""`rti intervene CONFIG`: one task, no training, everything shown."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any

from rti.commands import add_config_arguments

if TYPE_CHECKING:
    from rti.assemble import Run
    from rti.events import TurnRepaired
    from rti.registry import Registry
    from rti.types import Batch, Task


def configure(parser: argparse.ArgumentParser) -> None:
    """Fill the sub-parser of `rti intervene`."""
    parser.description = (
        "Roll one task out and intervene as training would, without training: every flagged turn "
        "with its diagnosis, draft and correction side by side, verdict, PPL against δ, and token "
        "weights."
    )
    add_config_arguments(parser)
    parser.add_argument("--task", metavar="ID", help="task id (default: the first of the split)")
    parser.add_argument("--step", type=int, default=0, help="step in the keys: other draws")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, registry: Registry) -> int:
    """Intervene on one task and show it."""
    from rti.assemble import assemble
    from rti.config import load_config
    from rti.errors import RunError
    from rti.events import as_record
    from rti.records import repaired_turn

    config = load_config(args.config, args.set)
    made = assemble(config, registry, trains=False)
    task = _task(made, args.task)

    async def work() -> Batch:
        try:
            return await made.collector.collect([task], made.policy.version, args.step)
        finally:
            await made.close()

    batch = asyncio.run(work())
    if not batch.metrics["rollouts"]:
        raise RunError(f"Every rollout of task {task.id!r} was dropped. {' '.join(batch.notes)}")
    looks = [repaired_turn(r, args.step, made.renderer) for r in batch.interventions]
    if args.json:
        record = {
            "task": task.id,
            "family": task.family,
            "metrics": dict(batch.metrics),
            "interventions": [as_record(look) for look in looks],
        }
        print(json.dumps(record, indent=2, ensure_ascii=False))
    else:
        _show(batch, looks)
    return 0


def _task(made: Run, wanted: str | None) -> Task:
    from rti.convert import did_you_mean
    from rti.errors import ConfigError

    tasks = made.environment.tasks(made.config.rollout.split)
    if not tasks:
        raise ConfigError(f"[rollout] split = {made.config.rollout.split!r} has no tasks.")
    if wanted is None:
        return tasks[0]
    for task in tasks:
        if task.id == wanted:
            return task
    near = did_you_mean(wanted, [t.id for t in tasks])
    raise ConfigError(
        f"--task {wanted}: no such task in split {made.config.rollout.split!r}.{near} "
        f"It has {len(tasks)} tasks, from {tasks[0].id} to {tasks[-1].id}."
    )


def _show(batch: Batch, looks: list[TurnRepaired]) -> None:
    from rich.console import Console
    from rich.text import Text

    from rti.words import explain

    console = Console(highlight=False)
    group = batch.groups[0]
    m = batch.metrics
    console.print(
        Text(
            f"task {group.task.id} ({group.task.family}): {m['rollouts']:.0f} rollouts, "
            f"pass@1 {m['pass@1']:.2f} before intervention"
        )
    )
    if not m["groups_fired"]:
        console.print(
            Text(
                "The trigger did not fire, so nothing is repaired; --set trigger.use=always tries."
            )
        )
    else:
        console.print(
            Text(
                f"{m['funnel/candidates']:.0f} failed rollouts are tried "
                "([intervention] repairs_per_group)"
            )
        )
    for look in looks:
        console.print()
        console.print(_card(look))
    console.print()
    console.print(Text(explain(batch)))


def _card(look: TurnRepaired) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    name = f"rollout {look.rollout}, attempt {look.attempt + 1}"
    if look.turn is not None:
        name += f", turn {look.turn}"
    ending = look.stage + (f" ({look.reason})" if look.reason else "")
    if look.trained:
        ending += ", entered the group"
    head = Text(f"{name}: {ending}", style="bold")
    if look.turn is None:
        return head
    table = Table(show_header=True, expand=False)
    table.add_column("draft", overflow="fold")
    table.add_column("correction", overflow="fold")
    table.add_row(Text(look.draft), _shaded(look) if look.correction else Text("–"))
    lines: list[Any] = [
        head,
        Text(f"history    {look.history}"),
        Text(f"diagnosis  {look.diagnosis}"),
        table,
    ]
    if look.verdicts:
        lines.append(Text("verdict    " + ", ".join(look.verdicts)))
    if look.perplexity is not None:
        lines.append(Text(f"PPL        {look.perplexity:.2f} at the rollout prompt"))
    if look.gates:
        lines.append(Text("gate       " + ", ".join(look.gates)))
    if look.weights:
        pairs = zip(look.tokens, look.weights, strict=True)
        lines.append(Text("weights    " + "  ".join(f"{t} {w:.2f}" for t, w in pairs)))
    if look.outcome is not None:
        lines.append(Text(f"outcome    {look.outcome:g}"))
    return Group(*lines)


def _shaded(look: TurnRepaired) -> Any:
    """The correction with its heavier tokens set off."""
    from rich.text import Text

    text = Text()
    weights = look.weights or [1.0] * len(look.tokens)
    for token, weight in zip(look.tokens, weights, strict=True):
        style = "bold green" if weight > 1 else "dim" if weight < 1 else ""
        text.append(token, style=style)
        if not token.endswith((" ", "\n")) and " " in look.correction:
            text.append(" " if f"{token} " in look.correction + " " else "")
    return text
