"""Servers that arms need: started when first asked for, gone when the command ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import define, field

from rti.compare.spec import Spec
from rti.errors import RunError

POLL_SECONDS = 0.2
ASK_SECONDS = 5.0
STOP_SECONDS = 10.0


def rti_command(words: Sequence[str]) -> list[str]:
    """`rti` with these words, by this interpreter."""
    return [sys.executable, "-m", "rti", *words]


def one_core() -> dict[str, str]:
    """The environment of a child process: one thread, nothing from a hub."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def start(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """`rti` with these words, its output at the end of `log`.

    In a process group of its own, so that whatever it starts can be stopped with it. Where the
    system can, it ends when we do, however we end.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(  # noqa: S603 - our own interpreter, our own arguments
            rti_command(words),
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=one_core(),
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )


def _die_with_parent() -> None:
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        return  # no Linux: what a SIGKILL leaves behind ends by itself


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and all it started: interrupt, so that a run saves; then kill."""
    for how, seconds in ((signal.SIGINT, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            continue
        if how is signal.SIGKILL:
            return
        # The leader is gone; its children may not be.


@define
class Services:
    """The services of a compare, each at most once."""

    spec: Spec
    options: Sequence[str] = ()
    """Global options of `rti`: which plug-ins there are."""
    ports: dict[str, int] = field(factory=dict)
    _running: dict[str, subprocess.Popen[bytes]] = field(factory=dict)

    def need(self, names: Sequence[str]) -> Mapping[str, int]:
        """Start those that do not run yet; the ports of all that do.

        Raises:
            RunError: when one ends, or does not answer in time.
        """
        for name in names:
            running = self._running.get(name)
            if running is None or running.poll() is not None:
                self._start(name)
        return self.ports

    def _start(self, name: str) -> None:
        service, port = self.spec.services[name], _free_port()
        words = [w.replace("{out}", self.spec.out) for w in service.command]
        words = [w.replace("{port}", str(port)) for w in words]
        url = service.ready.replace("{port}", str(port))
        log = Path(self.spec.out) / f"service-{name}.log"
        process = start([*self.options, *words], log)
        self._running[name] = process
        end = time.monotonic() + service.timeout_s
        while not _answers(url):
            if process.poll() is not None:
                raise RunError(
                    f"[services.{name}] ended with exit code {process.returncode} before it "
                    f"answered: see {log}{tail(log)}"
                )
            if time.monotonic() > end:
                stop(process)
                raise RunError(
                    f"[services.{name}] did not answer at {url} within timeout_s = "
                    f"{service.timeout_s:g} s: see {log}{tail(log)}"
                )
            time.sleep(POLL_SECONDS)
        self.ports[name] = port

    def close(self) -> None:
        """Stop them all."""
        for process in self._running.values():
            stop(process)
        self._running.clear()


def tail(log: Path, lines: int = 8) -> str:
    """The last lines of a log, each on a line of its own; "" without any."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in text.splitlines()[-lines:])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=ASK_SECONDS):  # noqa: S310 - http(s), checked
            return True
    except urllib.error.HTTPError:
        return False
    except (OSError, ValueError):
        return False


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
