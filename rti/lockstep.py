"""Batching by need: flush when every live episode waits, never on a timer.

A timer would let the machine's load decide who shares a batch, and padding changes logits by
3e-7: results would then depend on more than the seed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from attrs import define, field

Request = TypeVar("Request")
Result = TypeVar("Result")

_member: ContextVar[int | None] = ContextVar("rti_lockstep_member", default=None)


@define
class Lockstep(Generic[Request, Result]):
    """Collects requests of concurrent episodes and runs them as one batch.

        lockstep = Lockstep(run_batch)
        results = await lockstep.gather([episode(a), episode(b)])   # each awaits lockstep.call(...)

    `run_batch` takes the waiting requests in the order of their keys and returns one result each.
    An episode that awaits something else (a tool, a teacher) holds the batch until it is back.
    Between flushes no episode waits for the batch, so `run_batch` may block the event loop.
    """

    run_batch: Callable[[list[Request]], Sequence[Result]]
    _live: set[int] = field(init=False, factory=set)
    _born: int = field(init=False, default=0)
    _waiting: list[_Waiting] = field(init=False, factory=list)

    async def gather(self, coroutines: Sequence[Awaitable[Any]]) -> list[Any]:
        """Run episodes together; results in order. The first error is raised once all ended.

        An episode may gather episodes of its own: until the last of them ends it waits for them.
        """
        members = set(range(self._born, self._born + len(coroutines)))
        self._born += len(coroutines)
        caller = _member.get() if coroutines and _member.get() in self._live else None
        family = _Family(set(members), caller)
        tasks = [self._run(m, c, family) for m, c in zip(sorted(members), coroutines, strict=True)]
        if caller is not None:
            self._live.discard(caller)
        self._live.update(members)
        try:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            # One that was cancelled before it began never came to its own end …
            self._live.difference_update(members)
            for coroutine in coroutines:  # … and would complain that it was never awaited
                if inspect.iscoroutine(coroutine):
                    _close_unbegun(coroutine)
            if caller is not None:
                self._live.add(caller)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    async def _run(self, member: int, coroutine: Awaitable[Any], family: _Family) -> Any:
        _member.set(member)
        try:
            return await coroutine
        finally:
            self._live.discard(member)
            family.running.discard(member)
            if not family.running and family.caller is not None:
                self._live.add(family.caller)
            self._flush_if_all_wait()

    async def call(self, keys: Sequence[Any], requests: Sequence[Request]) -> list[Result]:
        """Wait for the results of these requests. Keys order the batch: they must compare."""
        member = _member.get()
        if member is None or member not in self._live:
            return list(self.run_batch(list(requests)))
        futures = [asyncio.get_running_loop().create_future() for _ in requests]
        self._waiting += [
            _Waiting(member, key, request, future)
            for key, request, future in zip(keys, requests, futures, strict=True)
        ]
        self._flush_if_all_wait()
        return list(await asyncio.gather(*futures))

    def _flush_if_all_wait(self) -> None:
        # An episode that was cancelled by a timeout while it waited waits no longer.
        self._waiting = [w for w in self._waiting if not w.future.done()]
        if not self._waiting or not self._live <= {w.member for w in self._waiting}:
            return
        waiting, self._waiting = self._waiting, []
        try:
            waiting.sort(key=lambda w: w.key)
            results = self.run_batch([w.request for w in waiting])
            answered = list(zip(waiting, results, strict=True))
        except Exception as error:  # every waiter gets it: none is left hanging
            for w in waiting:
                w.future.set_exception(error)
            return
        for w, result in answered:
            w.future.set_result(result)


def _close_unbegun(coroutine: Coroutine[Any, Any, Any]) -> None:
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()


@define
class _Waiting:
    member: int
    key: Any
    request: Any
    future: asyncio.Future[Any]


@define
class _Family:
    """Episodes of one `gather`, and the episode that gathers them, if one does."""

    running: set[int]
    caller: int | None
