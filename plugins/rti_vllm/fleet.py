"""Servers that hold the same weights: pushes, sleep, and the life of a server of one's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import define, field

from rti import InfrastructureError, RunError
from rti_vllm.client import Client
from rti_vllm.endpoint import Endpoint, Fault, Refused
from rti_vllm.server import Server
from rti_vllm.weights import Exporter, WeightFolders, is_tied

RESETS = 5
SERVER_INFO = "/server_info?config_format=json"
INFO_SECONDS = 60.0
"""The answer describes the whole machine, which takes vLLM several seconds."""


@define(eq=False)
class Fleet:
    """One or several servers; `server` is one that is started here."""

    client: Client
    exporter: Exporter
    folders: WeightFolders
    server: Server | None = None
    max_restarts: int = 3
    sleeps: bool = False
    counts: dict[str, float] = field(
        factory=lambda: dict.fromkeys(("pushes", "push_seconds", "restarts", "start_seconds"), 0.0)
    )
    _current: Path | None = field(init=False, default=None)
    _asleep: bool = field(init=False, default=False)
    _broken: str = field(init=False, default="")

    def __attrs_post_init__(self) -> None:
        self.client.on_ready, self.client.on_fault = self._make_equal, self._after_fault

    async def load(self, weights: Mapping[str, Any]) -> None:
        """Write the weights to a folder and have every server take them.

        Raises:
            InfrastructureError: when no server took them.
            RunError: when the servers cannot be given weights at all.
        """
        began = time.perf_counter()
        folder = self.folders.next()
        await self._learn_heads()
        await asyncio.to_thread(self.exporter.write, folder, weights)
        self._current = folder
        if self.server is None or self.server.alive:
            await self._push_to_all()
        elif self.server.starts:
            await self._restart("it had ended")
        else:
            await self.open()
        self.folders.remove(keep=folder)
        self.counts["pushes"] += 1
        self.counts["push_seconds"] += time.perf_counter() - began

    async def _push_to_all(self) -> None:
        for endpoint in self.client.endpoints:
            endpoint.ready = False  # meeting a server makes it equal to the others
        results = await asyncio.gather(
            *(self.client.ready(e) for e in self.client.endpoints), return_exceptions=True
        )
        self._asleep = False
        wrong: list[Fault] = []
        for endpoint, result in zip(self.client.endpoints, results, strict=True):
            if isinstance(result, Fault):
                wrong.append(result)
                self.client.rest(endpoint)
            elif isinstance(result, BaseException):
                raise result
        if len(wrong) < len(results):
            return
        if self.server is None:
            raise InfrastructureError(
                f"[policy] (vllm) no server took the new weights: {wrong[0]}. A server must see "
                f"{self._current} under this path: [policy] weights_dir may name a shared folder."
            )
        await self._restart(str(wrong[0]), at_once=True)

    async def _make_equal(self, endpoint: Endpoint) -> None:
        """Wake a server and give it the current weights. Called before it gets requests."""
        if self.sleeps:
            await self._dev(endpoint, "/wake_up", {})
        if self._current is None or endpoint.holds == self._current:
            return
        request = {"method": "reload_weights", "kwargs": {"weights_path": str(self._current)}}
        await self._dev(endpoint, "/collective_rpc", request)
        for _ in range(RESETS):
            reply = await self._dev(endpoint, "/reset_prefix_cache", {})
            if not isinstance(reply, dict) or reply.get("success", True):
                endpoint.holds = self._current
                return
            # Requests of the old weights still hold blocks: have them computed again.
            await self._dev(endpoint, "/reset_prefix_cache?reset_running_requests=true", {})
        raise Fault("its prefix cache cannot be emptied of the old weights")

    async def _dev(self, endpoint: Endpoint, path: str, body: Mapping[str, Any]) -> Any:
        try:
            return await self.client.send(endpoint, path, body)
        except Refused as refused:
            if refused.status != 404:
                raise RunError(f"[policy] (vllm) {refused}") from None
            raise RunError(
                f"[policy] (vllm) {endpoint.url} has no {path.split('?')[0]}: start it with "
                "VLLM_SERVER_DEV_MODE=1 in its environment"
                + (" and --enable-sleep-mode." if self.sleeps else ".")
            ) from None

    async def _learn_heads(self) -> None:
        """Ask servers of others whether they tie the head: see `rti_vllm.weights`."""
        if self.server is not None or self._current is not None:
            return
        if not is_tied(self.exporter.source):
            return
        for endpoint in self.client.endpoints:
            try:
                models = await self.client.send(endpoint, "/v1/models", None, INFO_SECONDS)
                info = await self.client.send(endpoint, SERVER_INFO, None, INFO_SECONDS)
            except (Fault, Refused):
                continue  # an older server, or one that is down: the push itself will tell
            if tied_there(models) is False:
                self.exporter.untie = True
            elif device_of(info) == "cpu":
                raise RunError(
                    f"[policy] (vllm) {endpoint.url} runs on a CPU and ties the model's head to "
                    "its embedding: it would keep the old head after a push. Leave base_urls "
                    "empty, so that rti starts the server."
                )

    # --- a server of one's own --------------------------------------------------------------------

    async def open(self) -> None:
        """Start the server, if it is ours and has not been started yet; wake it if it sleeps.

        Raises:
            RunError: when its first start fails.
        """
        if self._broken:
            raise RunError(self._broken)
        if self.server is not None and not self.server.starts:
            async with self.client.lock("start"):
                if not self.server.starts:
                    await self._start_first()
        if self._asleep:
            async with self.client.lock("wake"):
                if self._asleep:
                    await self._push_to_all()

    async def _start_first(self) -> None:
        assert self.server is not None
        try:
            await self._start()
        except InfrastructureError as error:
            self._broken = str(error)
            raise RunError(self._broken) from error

    async def _start(self) -> None:
        server, endpoint = self.server, self.client.endpoints[0]
        assert server is not None
        if self._current is None and self.exporter.unties:
            folder = self.folders.next()
            await asyncio.to_thread(self.exporter.write, folder)
            self._current = folder
        await server.start(self._current or self.exporter.source)
        endpoint.url, endpoint.ready, endpoint.down_until = server.url, False, 0.0
        endpoint.holds, self._asleep = self._current, False
        self.counts["start_seconds"] = server.seconds_starting

    async def _after_fault(self, endpoint: Endpoint) -> None:
        """After a try that failed: start our server again if it is dead or deaf."""
        if endpoint.ready:
            return
        if self.server is not None:
            await self._restart(endpoint.last_fault)
        else:  # whoever answers there next may be another process, with other weights
            endpoint.holds = None

    async def _restart(self, reason: str, at_once: bool = False) -> None:
        server = self.server
        assert server is not None
        async with self.client.lock("start"):
            if not at_once and server.alive and await server.healthy():
                return
            if server.starts > self.max_restarts:
                raise InfrastructureError(
                    f"[policy] (vllm) the vLLM server died again ({reason}) and has been started "
                    f"{server.starts} times ([policy] max_restarts). Its log: {server.log}"
                )
            self.counts["restarts"] += 1
            await self._start()

    async def sleep(self) -> None:
        """Free the accelerator until the next load."""
        if not self.sleeps or (self.server is not None and not self.server.alive):
            return
        self._asleep = True
        for endpoint in self.client.endpoints:
            try:
                await self._dev(endpoint, "/sleep?level=1", {})
            except Fault as fault:
                raise InfrastructureError(
                    f"[policy] (vllm) {endpoint.url} did not go to sleep: {fault}"
                ) from fault

    async def close(self) -> None:
        """End the server, if it is ours, and remove the weights."""
        await self.client.close()
        if self.server is not None:
            await self.server.stop()
        self.folders.remove()


def device_of(info: Any) -> str:
    """The device that /server_info names, "" when it does not."""
    config = info.get("vllm_config") if isinstance(info, dict) else None
    devices = config.get("device_config") if isinstance(config, dict) else None
    return str(devices.get("device") or "") if isinstance(devices, dict) else ""


def tied_there(models: Any) -> bool | None:
    """Whether the folder that /v1/models names as the model's ties its head; None: not seen."""
    listed = models.get("data") if isinstance(models, dict) else None
    for model in listed if isinstance(listed, list) else ():
        root = model.get("root") if isinstance(model, dict) else None
        if isinstance(root, str) and (Path(root) / "config.json").is_file():
            return is_tied(Path(root))
    return None
