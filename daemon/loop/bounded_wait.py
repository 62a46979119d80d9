"""Waiting on the event loop for so long and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def within(timeout_s: float | None, work: Coroutine[Any, Any, Result]) -> Result:
    """What the work returns or raises; TimeoutError if it takes longer than `timeout_s`, None for ever.

    asyncio.wait_for (before Python 3.12) loses a cancellation that comes just when the work ends, and then a
    conversation that was to be ended at the daemon's stop would go on. The work has ended when this returns, so that
    nothing of it still watches a socket that is about to be closed.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # looked at: if we are cancelled just now, nobody else will
    if task.cancelled():
        raise TimeoutError
    return task.result()
