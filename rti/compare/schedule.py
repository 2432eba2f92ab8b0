"""Jobs with dependencies, a few at a time: each an `rti` process of its own."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attrs import define, field

from rti.compare.services import start, stop, tail
from rti.errors import RunError

POLL_SECONDS = 0.2
REPORT_SECONDS = 1.0


@define(eq=False)
class Job:
    """One process: its words, made when it starts, and the names of the jobs it waits for."""

    name: str
    words: Callable[[], Sequence[str]]
    log: Path
    after: tuple[str, ...] = ()
    finished: Callable[[], object] = lambda: None
    """Called after success."""
    lacks: Callable[[], str] = lambda: ""
    """What is missing after an end with exit code 0, if anything: then it was no success."""
    failure: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)


def run_jobs(
    jobs: Sequence[Job], at_once: int, done: set[str], tell: Callable[[Sequence[Job]], None]
) -> list[Job]:
    """Run all jobs and return those that failed; what waits for one that failed is not begun.

    Args:
        jobs: in the order in which they are to begin, as far as dependencies allow.
        at_once: how many processes.
        done: names of jobs that are done already; it grows.
        tell: called about once a second with the jobs that run.

    However it ends, no process is left behind.
    """
    waiting, running, failed = list(jobs), list[Job](), list[Job]()
    told = 0.0
    try:
        while waiting or running:
            for job in _over(running):
                running.remove(job)
                if job.failure:
                    failed.append(job)
                else:
                    job.finished()
                    done.add(job.name)
            lost = {job.name for job in failed}
            for job in [j for j in waiting if lost & set(j.after)]:
                job.failure = f"not begun: {', '.join(lost & set(job.after))} failed"
                waiting.remove(job)
                failed.append(job)
            for job in [j for j in waiting if done >= set(j.after)][: at_once - len(running)]:
                waiting.remove(job)
                try:
                    job.process = start(job.words(), job.log)
                except RunError as error:  # a service did not come up: other jobs may need none
                    job.failure = f"not begun: {error}"
                    failed.append(job)
                else:
                    running.append(job)
            if time.monotonic() - told >= REPORT_SECONDS:
                told = time.monotonic()
                tell(running)
            if running:
                time.sleep(POLL_SECONDS)
            elif waiting and not failed:
                names = ", ".join(job.name for job in waiting)
                raise AssertionError(f"jobs wait for each other: {names}")
    finally:
        for job in running:
            assert job.process is not None
            stop(job.process)
    return failed


def _over(running: Sequence[Job]) -> Iterator[Job]:
    for job in list(running):
        assert job.process is not None
        code = job.process.poll()
        if code is not None:
            if code:
                job.failure = f"ended with exit code {code}: see {job.log}{tail(job.log)}"
            elif missing := job.lacks():
                job.failure = f"{missing}: see {job.log}{tail(job.log)}"
            yield job
