"""Bounded waits: they return, raise or time out, and lose no cancellation."""

import asyncio
import gc

import pytest

from shmreplay.daemon.loop.bounded_wait import within
from tests.support.waiting import WAIT_S


def test_a_bounded_wait_returns_raises_or_times_out() -> None:
    async def give(value: int) -> int:
        return value

    async def fail() -> None:
        raise ValueError("own")

    async def main() -> None:
        assert await within(WAIT_S, give(3)) == 3
        assert await within(None, give(4)) == 4
        with pytest.raises(ValueError, match="own"):
            await within(WAIT_S, fail())
        with pytest.raises(TimeoutError):
            await within(0.01, asyncio.Event().wait())

    asyncio.run(main())


def test_a_cancellation_that_comes_just_when_the_work_ends_is_not_lost() -> None:
    async def main() -> None:
        event = asyncio.Event()
        waiting = asyncio.ensure_future(within(WAIT_S, event.wait()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        event.set()
        await asyncio.sleep(0)  # the inner work ends in this step
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())


def test_an_error_that_comes_with_a_cancellation_is_no_loose_end() -> None:
    """asyncio would log "Task exception was never retrieved" with a traceback, as of a client that was killed."""

    async def fail() -> None:
        raise BrokenPipeError

    async def main() -> None:
        loose: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: loose.append(context["message"]))
        waiting = asyncio.ensure_future(within(WAIT_S, fail()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the inner work ends in this step
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        del waiting
        gc.collect()
        assert loose == []

    asyncio.run(main())


def test_work_that_is_cut_short_has_ended_when_the_wait_returns() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append("work")

        with pytest.raises(TimeoutError):
            await within(0.01, work())
        assert ended == ["work"]
        waiting = asyncio.ensure_future(within(None, work()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended == ["work", "work"]

    asyncio.run(main())
