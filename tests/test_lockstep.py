"""Lockstep: who shares a batch depends on who is alive, and on nothing else."""

from __future__ import annotations

import asyncio
import gc
import random

import pytest

from rti.lockstep import Lockstep


class Recorder:
    """Runs batches of numbers: answers each with its square, and keeps what it was asked."""

    def __init__(self):
        self.batches = []
        self.lockstep = Lockstep(self.run)

    def run(self, requests):
        self.batches.append(list(requests))
        return [r * r for r in requests]

    async def ask(self, *requests):
        return await self.lockstep.call(list(requests), list(requests))


async def within(seconds, awaitable):
    async with asyncio.timeout(seconds):
        return await awaitable


def run(coroutine):
    return asyncio.run(within(10, coroutine))


def test_flushes_when_every_live_episode_waits_and_not_before():
    recorder = Recorder()

    async def episode(number, rounds):
        return [(await recorder.ask(number))[0] for _ in range(rounds)]

    results = run(recorder.lockstep.gather([episode(1, 1), episode(2, 3), episode(3, 2)]))
    assert results == [[1], [4, 4, 4], [9, 9]]
    assert recorder.batches == [[1, 2, 3], [2, 3], [2]]


def test_an_episode_that_awaits_something_else_holds_the_batch():
    recorder = Recorder()
    seen_while_away = []

    async def waits(number):
        return await recorder.ask(number)

    async def is_away():
        for _ in range(20):
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        seen_while_away.extend(recorder.batches)
        return await recorder.ask(7)

    run(recorder.lockstep.gather([waits(1), is_away(), waits(3)]))
    assert seen_while_away == []
    assert recorder.batches == [[1, 3, 7]]


def test_an_episode_that_ends_without_asking_releases_the_others():
    recorder = Recorder()

    async def silent():
        await asyncio.sleep(0.01)

    async def fails():
        await asyncio.sleep(0.02)
        raise LookupError("mine alone")

    async def good():
        return await recorder.ask(5)

    with pytest.raises(LookupError, match="mine alone"):
        run(recorder.lockstep.gather([good(), silent(), fails(), good()]))
    assert recorder.batches == [[5, 5]]


@pytest.mark.parametrize("seed", range(5))
def test_order_is_by_key_whatever_the_arrival(seed):
    recorder = Recorder()
    delays = random.Random(seed)

    async def episode(number):
        answers = []
        for round_ in range(3):
            for _ in range(delays.randrange(6)):
                await asyncio.sleep(0)
            answers += await recorder.lockstep.call([(-number, round_)], [number])
        return answers

    results = run(recorder.lockstep.gather([episode(n) for n in (4, 2, 9, 1)]))
    assert results == [[n * n] * 3 for n in (4, 2, 9, 1)]
    assert recorder.batches == [[9, 4, 2, 1]] * 3


def test_several_requests_of_one_member_in_one_call():
    recorder = Recorder()

    async def pair():
        return await recorder.ask(6, 2)

    async def one():
        return await recorder.ask(4)

    async def none():
        return await recorder.ask()

    results = run(recorder.lockstep.gather([pair(), one(), none()]))
    assert results == [[36, 4], [16], []]
    assert recorder.batches == [[2, 4, 6]]


def test_an_episode_may_gather_episodes_of_its_own():
    recorder = Recorder()

    async def judge(number):
        return await recorder.ask(number)

    async def asks_three_judges():
        votes = await recorder.lockstep.gather([judge(4), judge(2), judge(3)])
        await asyncio.sleep(0.01)  # it is back among the living: the others wait for it
        return [*votes, await recorder.ask(10)]

    async def other():
        return [await recorder.ask(20), await recorder.ask(30)]

    assert run(recorder.lockstep.gather([asks_three_judges(), other()])) == [
        [[16], [4], [9], [100]],
        [[400], [900]],
    ]
    assert recorder.batches == [[2, 3, 4, 20], [10, 30]]


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (lambda requests: 1 / 0, ZeroDivisionError),
        (lambda requests: requests[:-1], ValueError),
        (lambda requests: [*requests, 0], ValueError),
    ],
)
def test_an_error_reaches_every_waiter_and_nobody_hangs(broken, error):
    lockstep = Lockstep(broken)
    got = []

    async def episode(number):
        try:
            await lockstep.call([number], [number])
        except error as caught:
            got.append((number, type(caught)))
            raise

    with pytest.raises(error):
        run(lockstep.gather([episode(n) for n in range(3)]))
    assert sorted(got) == [(n, error) for n in range(3)]


def test_keys_that_do_not_compare_are_an_error_for_all_and_no_hang():
    recorder = Recorder()

    async def episode(key):
        return await recorder.lockstep.call([key], [1])

    with pytest.raises(TypeError):
        run(recorder.lockstep.gather([episode(1), episode("a"), episode(2)]))


def test_after_an_error_it_works_again():
    calls = []

    def fails_once(requests):
        calls.append(list(requests))
        if len(calls) == 1:
            raise OSError("server down")
        return requests

    lockstep = Lockstep(fails_once)

    async def retries(number):
        try:
            return await lockstep.call([number], [number])
        except OSError:
            return await lockstep.call([number], [number])

    assert run(lockstep.gather([retries(1), retries(2)])) == [[1], [2]]
    assert calls == [[1, 2], [1, 2]]


def test_a_request_whose_episode_gave_up_is_not_run_and_does_not_count_as_waiting():
    recorder = Recorder()
    held = []

    async def gives_up():
        try:
            async with asyncio.timeout(0.02):
                await recorder.ask(1)
        except TimeoutError:
            # It is busy with something else now: the batch waits for it again.
            await asyncio.sleep(0.05)
            held.append(list(recorder.batches))
            return await recorder.ask(2)

    async def patient():
        await asyncio.sleep(0.04)
        return await recorder.ask(3)

    assert run(recorder.lockstep.gather([gives_up(), patient()])) == [[4], [9]]
    assert held == [[]]
    assert recorder.batches == [[2, 3]]


def test_a_cancelled_gather_runs_nothing_and_leaves_nothing_behind():
    recorder = Recorder()

    async def waits(number):
        return await recorder.ask(number)

    async def sleeps():
        await asyncio.sleep(30)

    async def scenario():
        whole = asyncio.ensure_future(recorder.lockstep.gather([waits(1), sleeps(), waits(2)]))
        await asyncio.sleep(0.01)
        whole.cancel()
        with pytest.raises(asyncio.CancelledError):
            await whole
        assert recorder.batches == []
        # Cancelled before any of its episodes had begun.
        episodes = [sleeps(), sleeps()]
        early = asyncio.ensure_future(recorder.lockstep.gather(episodes))
        await asyncio.sleep(0)
        early.cancel()
        with pytest.raises(asyncio.CancelledError):
            await early
        for episode in episodes:
            episode.close()
        return await recorder.lockstep.gather([waits(3), waits(4)])

    assert run(scenario()) == [[9], [16]]
    assert recorder.batches == [[3, 4]]


@pytest.mark.filterwarnings("error")
def test_episodes_that_a_cancel_kept_from_beginning_do_not_complain():
    """Ctrl-C in the middle of an update is heard when the next rollouts are gathered."""
    recorder, begun = Recorder(), []

    async def episode(number):
        begun.append(number)

    async def main():
        asyncio.current_task().cancel()
        await recorder.lockstep.gather([episode(n) for n in range(5)])

    with pytest.raises(asyncio.CancelledError):
        run(main())
    gc.collect()  # "never awaited" is said when they are collected
    assert begun == []


def test_works_outside_gather_and_after_it():
    recorder = Recorder()

    async def late():
        [[answer]] = await recorder.lockstep.gather([recorder.ask(2)])
        return answer, await recorder.ask(5, 1)

    assert run(recorder.ask(3)) == [9]
    assert run(late()) == (4, [25, 1])
    assert recorder.batches == [[3], [2], [5, 1]]


def test_same_episodes_same_batches():
    def once():
        recorder = Recorder()

        async def episode(number):
            for round_ in range(number % 3 + 1):
                await asyncio.sleep(random.random() / 500)
                await recorder.ask(10 * number + round_)

        run(recorder.lockstep.gather([episode(n) for n in range(6)]))
        return recorder.batches

    assert once() == once()
