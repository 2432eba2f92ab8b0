"""A vLLM server of one's own: found, started, waited for, restarted, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
from attrs import define, field

from rti import InfrastructureError
from rti_vllm.endpoint import KEY_ENV
from rti_vllm.installed import Found
from rti_vllm.launch import HOST, Launch

GUARD = Path(__file__).with_name("guard.py")
STOP_SECONDS = 20.0
HEALTH_SECONDS = 10.0
TAIL_LINES = 15
TAIL_CHARACTERS = 2000


@define(eq=False)
class Server:
    """One server process at a time, and its log."""

    launch: Launch
    found: Found
    log: Path
    url: str = field(init=False, default="")
    starts: int = field(init=False, default=0)
    seconds_starting: float = field(init=False, default=0.0)
    _process: subprocess.Popen[bytes] | None = field(init=False, default=None, repr=False)

    @property
    def alive(self) -> bool:
        """Whether the process runs; it may still be deaf."""
        return self._process is not None and self._process.poll() is None

    async def start(self, model: Path) -> None:
        """Start on the weights in `model` and wait until it answers.

        Raises:
            InfrastructureError: when it ends first, or takes longer than startup_timeout_s. The
                message holds the end of its log.
        """
        await self.stop(at_once=True)  # one that is started again is dead or deaf
        port = self.launch.port or free_port()
        self.url, self.starts = f"http://{HOST}:{port}", self.starts + 1
        self.log.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        self._process = self._spawn(model, port)
        try:
            await self._wait_until_ready(began + self.launch.startup_timeout_s)
        except BaseException:  # also when the run is interrupted: nothing half started stays
            await self.stop()
            raise
        self.seconds_starting += time.monotonic() - began

    def _spawn(self, model: Path, port: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(GUARD), *self.launch.command(model, port, self.found)]
        with self.log.open("ab") as log:
            log.write(f"--- rti starts {self.found} on {model}\n".encode())
            log.flush()
            return subprocess.Popen(  # noqa: S603 - the config's own command
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.launch.settings(self.found)},
                start_new_session=True,
            )

    async def _wait_until_ready(self, until: float) -> None:
        assert self._process is not None
        while not await self.healthy():
            status = self._process.poll()
            if status is not None:
                raise InfrastructureError(
                    f"[policy] (vllm) the vLLM server ended with status {status} before it was "
                    f"ready. {self._told()}"
                )
            if time.monotonic() > until:
                raise InfrastructureError(
                    f"[policy] (vllm) the vLLM server was not ready within "
                    f"{self.launch.startup_timeout_s:g} s ([policy] startup_timeout_s). "
                    f"{self._told()}"
                )
            await asyncio.sleep(0.25)

    async def healthy(self) -> bool:
        """Whether it says that it is well."""
        try:
            async with httpx.AsyncClient(timeout=HEALTH_SECONDS, trust_env=False) as http:
                return (await http.get(f"{self.url}/health")).status_code == 200
        except httpx.HTTPError:
            return False

    async def stop(self, at_once: bool = False) -> None:
        """End the server and everything it has started. Safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        if at_once and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.stdin.close()  # the guard sees it, and ends the whole group
        await asyncio.to_thread(_await_end, process)

    def _told(self) -> str:
        return f"Its log, {self.log}, ends:\n{tail(self.log)}"


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS)


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def tail(log: Path, environ: Mapping[str, str] = os.environ) -> str:
    """The last lines of a log, without the key should it stand there."""
    try:
        text = log.read_bytes()[-20_000:].decode(errors="replace")
    except OSError as error:
        return f"(cannot be read: {error})"
    lines = [line for line in text.splitlines() if line.strip()][-TAIL_LINES:]
    text = "\n".join(lines)[-TAIL_CHARACTERS:]
    key = environ.get(KEY_ENV, "")
    return text.replace(key, "***") if key else text
