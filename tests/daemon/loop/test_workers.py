"""Workers: they return, raise, and say whether all of them came back."""

import asyncio
import threading

import pytest

from shmreplay.daemon.loop.workers import Workers


def test_workers_return_raise_and_say_whether_all_came_back() -> None:
    began, stuck = threading.Event(), threading.Event()

    def wait_for_long() -> None:
        began.set()
        stuck.wait()

    async def main() -> Workers:
        workers = Workers()
        assert await workers.run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await workers.run(divmod, 7, 0)
        pending = asyncio.ensure_future(workers.run(wait_for_long))
        assert await workers.run(began.wait, 60)  # work that no thread has begun is only dropped by the cancel
        pending.cancel()
        return workers

    assert not asyncio.run(main()).close()
    stuck.set()

    async def nothing_left() -> Workers:
        workers = Workers()
        await workers.run(int)
        return workers

    assert asyncio.run(nothing_left()).close()
