"""TensorBoard: curves of every metric, histograms of repaired turns, the step's words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from attrs import define, field

from rti import Context, anything, option
from rti.checkpoint import replacing
from rti.events import Evaluated, RunEnded, StepDone, TurnRepaired

FOLDER = "tensorboard"


@define
class TensorBoardReporter:
    """Writes into the run's `tensorboard/`: look at it with `tensorboard --logdir runs`.

    The axis counts steps done, so that a step and the evaluation behind it share a point.
    """

    extra: ClassVar[str] = "tensorboard"

    histograms: bool = option(
        True, "Write histograms of the perplexities and token weights of repaired turns.", anything
    )
    _folder: Path = field(init=False, default=Path(FOLDER))
    _writer: Any = field(init=False, default=None, repr=False)
    _purge: int | None = field(init=False, default=None)
    _perplexities: list[float] = field(init=False, factory=list)
    _weights: list[float] = field(init=False, factory=list)

    def bind(self, context: Context) -> None:
        """The files lie in the run's folder.

        Raises:
            PluginError: without the package `tensorboard` (told with the pip line).
        """
        import torch.utils.tensorboard  # noqa: F401 - found out before the run, not after a step

        assert context.out is not None
        self._folder = context.out / FOLDER

    def rewind(self, step: int) -> None:
        """Take back what a killed run wrote after the checkpoint that it goes on from; −1: all.

        Marking late points as superseded (`purge_step`) is not enough: TensorBoard honours that
        for curves alone. It is done beside, for a TensorBoard that has read the files already.
        """
        self._purge = max(0, step + 1)
        for path in sorted(self._folder.glob("*tfevents*")):
            if path.name.startswith("."):  # half of such a rewrite, which a kill left behind
                path.unlink()
            else:
                _take_back(path, step)

    def report(self, event: Any) -> None:
        """Write what can be drawn."""
        if isinstance(event, TurnRepaired):
            if event.perplexity is not None:
                self._perplexities.append(event.perplexity)
            self._weights += event.weights
        elif isinstance(event, StepDone):
            self._scalars("train", event.metrics, event.step + 1)
            self._open().add_text("words", _as_text(event.words), event.step + 1)
            self._histograms(event.step + 1)
        elif isinstance(event, Evaluated):
            self._scalars("eval", event.metrics, event.step)
            for family, metrics in event.families.items():
                self._scalars(f"eval/{family}", metrics, event.step)
        elif isinstance(event, RunEnded) and self._writer is not None:
            self._writer.flush()

    def _open(self) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=self._purge)
        return self._writer

    def _scalars(self, where: str, metrics: Mapping[str, float], step: int) -> None:
        for name, value in _finite(metrics):
            self._open().add_scalar(f"{where}/{name}", value, step)

    def _histograms(self, step: int) -> None:
        drawn = {"ppl": self._perplexities, "weights": self._weights}
        self._perplexities, self._weights = [], []
        if self.histograms:
            import numpy as np

            for name, values in drawn.items():
                finite = [v for v in values if math.isfinite(v)]
                if finite:
                    self._open().add_histogram(f"repaired/{name}", np.array(finite), step)

    def close(self) -> None:
        """Write what is left, and close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _take_back(path: Path, step: int) -> None:
    """Keep of a file of events what stands at `step` or before it; no file, where that is none."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    kept = 0
    with replacing(path) as file:
        writer = RecordWriter(file)
        for raw in RawEventFileLoader(str(path)).Load():  # ends where a kill cut the file short
            event = Event.FromString(raw)
            header = event.HasField("file_version")
            if header or event.step <= step:
                writer.write(raw)
                kept += not header
    if not kept:
        path.unlink()


def _finite(metrics: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        if isinstance(value, int | float) and math.isfinite(value):
            yield name, float(value)


def _as_text(words: str) -> str:
    """TensorBoard reads text as Markdown: a code block shows it as it is."""
    return "    " + words.replace("\n", "\n    ")
