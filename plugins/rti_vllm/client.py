"""HTTP to one or several vLLM servers: the least loaded that is up, retried within a bound."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, TypeVar

import httpx
from attrs import define, field

from rti import InfrastructureError, RunError
from rti_vllm.endpoint import (
    Endpoint,
    Fault,
    Refused,
    headers,
    message_of,
    plain_url,
    seconds_of,
    served_by,
    waiting_time,
)
from rti_vllm.wire import BadReply

T = TypeVar("T")
RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
CONNECT_SECONDS = 10.0
PROBE_SECONDS = 10.0
KEEP_SECONDS = 3.0
"""Less than the five seconds after which vLLM drops an idle connection."""
COOLDOWN_SECONDS = 5.0
"""How long a server that failed is left out before it is asked again whether it is well."""


@define(eq=False)
class Client:
    """Asks servers.

    `on_ready` is called with a server that has just been found well, before it gets requests;
    `on_fault` after a try that failed, before the next one.
    """

    urls: tuple[str, ...]
    timeout_s: float = 600.0
    retries: int = 3
    connections: int = 256
    model: str = ""
    on_ready: Callable[[Endpoint], Awaitable[None]] | None = None
    on_fault: Callable[[Endpoint], Awaitable[None]] | None = None
    counts: dict[str, float] = field(
        factory=lambda: {"requests": 0.0, "retries": 0.0, "request_seconds": 0.0}
    )
    endpoints: list[Endpoint] = field(init=False, factory=list)
    _loop: Any = field(init=False, default=None, repr=False)
    _opened: _Opened = field(init=False, default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        self.endpoints = [Endpoint(plain_url(url)) for url in self.urls]

    # --- one request, and as many tries as it takes ---------------------------------------------

    async def ask(
        self,
        path: str,
        body: Mapping[str, Any],
        read: Callable[[Any], T],
        *,
        near: int = 0,
        tries: int = 0,
        dispatched: Callable[[], None] = lambda: None,
    ) -> T:
        """Ask the least loaded server that is up; `near` decides between equals.

        `dispatched` is called right before each try. The whole takes at most
        (retries + 1) · timeout_s, the waits between, and what `on_fault` takes; `tries` stands in
        for retries + 1.

        Raises:
            InfrastructureError: when the last try failed too.
            Refused: when the server says that the request is wrong.
        """
        fault, endpoint = Fault(""), self.endpoints[0]
        tries = tries or self.retries + 1
        for tried in range(tries):
            if tried:
                self.counts["retries"] += 1
                await asyncio.sleep(waiting_time(tried, fault.wait))
            endpoint = self._choose(near)
            endpoint.in_flight += 1
            try:
                await self.ready(endpoint)
                async with self._open().room:
                    dispatched()
                    reply = await self.send(endpoint, path, {**body, "model": endpoint.model})
                return read(reply)
            except BadReply as error:
                fault = Fault(f"its answer cannot be used: {error}")
            except Fault as error:
                fault = error
            finally:
                endpoint.in_flight -= 1
            await self._note(endpoint, fault)
        raise InfrastructureError(
            f"[policy] (vllm) {endpoint.url}: {fault}. Given up after {tries} tries "
            "([policy] retries, timeout_s)."
        )

    async def _note(self, endpoint: Endpoint, fault: Fault) -> None:
        endpoint.last_fault = str(fault)
        if fault.down:
            self.rest(endpoint)
        if self.on_fault is not None:
            await self.on_fault(endpoint)

    def rest(self, endpoint: Endpoint) -> None:
        """Leave a server out for a while."""
        endpoint.ready = False
        endpoint.down_until = time.monotonic() + COOLDOWN_SECONDS

    def _choose(self, near: int) -> Endpoint:
        now = time.monotonic()
        up = [e for e in self.endpoints if e.down_until <= now]
        if not up:
            return min(self.endpoints, key=lambda e: e.down_until)
        first = near % len(up)
        return min(up[first:] + up[:first], key=lambda e: e.in_flight)

    async def ready(self, endpoint: Endpoint) -> None:
        """Ask a server that is new, or was down, who it is; then `on_ready`.

        Raises:
            Fault: when it does not say.
        """
        if endpoint.ready:
            return
        async with self.lock(endpoint):
            if endpoint.ready:
                return
            try:
                await self._meet(endpoint)
            except Fault as fault:
                raise Fault(str(fault), down=True) from fault
            endpoint.ready, endpoint.down_until = True, 0.0

    async def _meet(self, endpoint: Endpoint) -> None:
        served = served_by(await self.send(endpoint, "/v1/models", None, PROBE_SECONDS), self.model)
        if served is None:
            raise Fault("/v1/models does not tell what it serves")
        if self.model and served["id"] != self.model:
            raise RunError(
                f"[policy] (vllm) {endpoint.url} does not serve model = {self.model!r}; it "
                f"serves {served['id']!r}."
            )
        endpoint.model = served["id"]
        length = served.get("max_model_len")
        endpoint.max_model_len = length if isinstance(length, int) else 0
        if self.on_ready is not None:
            await self.on_ready(endpoint)

    # --- one try ----------------------------------------------------------------------------------

    async def send(
        self,
        endpoint: Endpoint,
        path: str,
        body: Mapping[str, Any] | None,
        timeout_s: float | None = None,
    ) -> Any:
        """One request to one server: POST with a body, GET without. Returns the parsed answer.

        Raises:
            Fault: for anything that may be better next time.
            Refused: for a 4xx.
        """
        seconds = self.timeout_s if timeout_s is None else timeout_s
        began = time.perf_counter()
        self.counts["requests"] += 1
        try:
            async with asyncio.timeout(seconds):
                response = await self._open().http.request(
                    "GET" if body is None else "POST",
                    endpoint.url + path,
                    content=None if body is None else json.dumps(body),
                    headers=headers(),
                )
        except TimeoutError:
            raise Fault(f"no answer to {path} within {seconds:g} s", down=True) from None
        except (httpx.HTTPError, OSError) as error:
            words = str(error) or "the connection broke"
            raise Fault(f"{type(error).__name__}: {words}", down=True) from error
        finally:
            self.counts["request_seconds"] += time.perf_counter() - began
        status = response.status_code
        if status in RETRIED:
            wait = seconds_of(response.headers.get("retry-after"))
            raise Fault(f"{path} was answered {status}: {message_of(response)}", wait=wait)
        if status >= 400:
            raise Refused(endpoint.url, status, message_of(response))
        if not response.content:
            return None
        try:
            return json.loads(response.content)
        except ValueError as error:
            raise Fault(f"{path} was answered by something that is no JSON ({error})") from error

    def lock(self, what: Hashable) -> asyncio.Lock:
        """The running loop's lock on something."""
        return self._open().locks.setdefault(what, asyncio.Lock())

    def _open(self) -> _Opened:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            limits = httpx.Limits(
                max_connections=None,
                max_keepalive_connections=self.connections,
                keepalive_expiry=KEEP_SECONDS,
            )
            self._loop = loop
            self._opened = _Opened(
                httpx.AsyncClient(
                    timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
                    limits=limits,
                    trust_env=False,  # a proxy between a run and its servers is no good to it
                ),
                asyncio.Semaphore(self.connections * len(self.endpoints)),
            )
        return self._opened

    async def close(self) -> None:
        """Close the connections of the running loop."""
        if self._loop is asyncio.get_running_loop():
            await self._opened.http.aclose()
            self._loop = None


@define
class _Opened:
    """What lives in one event loop: connections, the room for requests, locks."""

    http: httpx.AsyncClient
    room: asyncio.Semaphore
    locks: dict[Hashable, asyncio.Lock] = field(factory=dict)
