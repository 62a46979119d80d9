"""The parent asks for the stop by a byte; the end of its stream is no request."""

import asyncio
import os
import socket

import pytest

from shmreplay.daemon.process.stop_request import watch_for_stop
from tests.support.waiting import WAIT_S


async def closed(fd: int) -> None:
    while True:
        try:
            os.fstat(fd)
        except OSError:
            return
        await asyncio.sleep(0)


@pytest.mark.parametrize("asks", [True, False])
def test_a_byte_asks_for_the_stop_and_the_end_of_the_stream_does_not(asks: bool) -> None:
    async def main() -> list[str]:
        ours, theirs = socket.socketpair()
        fd = theirs.detach()
        heard: list[str] = []
        watch_for_stop(fd, lambda: heard.append("stop"))
        if asks:
            ours.send(b"stop")
        ours.close()
        await asyncio.wait_for(closed(fd), WAIT_S)  # it was read to its end, then
        return heard

    assert asyncio.run(main()) == (["stop"] if asks else [])
