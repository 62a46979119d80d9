"""Waiting on the event loop with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def within(timeout_s: float | None, work: Coroutine[Any, Any, Result]) -> Result:
    """Returns or raises what the work does. Raises TimeoutError after `timeout_s`; None waits for ever.

    asyncio.wait_for (before Python 3.12) can lose a cancellation that arrives just as the work ends. A conversation
    that the stopping daemon cancels would then go on. This function also waits until the cancelled work has ended, so
    the caller can safely close a socket that the work was using.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # if we are cancelled now, nobody else retrieves it, and asyncio would complain
    if task.cancelled():
        raise TimeoutError
    return task.result()
