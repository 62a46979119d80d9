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


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_without_any_thread_work_is_refused_and_never_done_later(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    async def main() -> Workers:
        workers = Workers()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            with pytest.raises(
                OSError, match=r"shmreplayd cannot start a thread: can't start new thread; raise TasksM"
            ):
                await workers.run(done.append, 1)
        await workers.run(done.append, 2)
        return workers

    assert asyncio.run(main()).close()
    assert done == [2]


def test_without_another_thread_work_waits_for_one_that_there_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()

    async def main() -> Workers:
        workers = Workers()
        first = asyncio.ensure_future(workers.run(go_on.wait, 60))
        await asyncio.sleep(0)
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        others = [asyncio.ensure_future(workers.run(int, text)) for text in "123"]
        await asyncio.sleep(0)
        assert not any(work.done() for work in others)
        go_on.set()
        assert await first
        assert await asyncio.gather(*others) == [1, 2, 3]
        return workers

    assert asyncio.run(main()).close()
    assert caplog.text.count("requests wait for one of the 1 that there are") == 1
