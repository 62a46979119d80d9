"""A page without a daemon: the site of one, with figures that a test makes up."""

import asyncio
import pathlib
import threading
from typing import Any, cast

from shmreplay.daemon.control.commands import Answer, Caller, Commands
from shmreplay.daemon.loop.endpoint import Endpoint
from shmreplay.daemon.loop.workers import Workers
from shmreplay.daemon.web.site import Site
from shmreplay.protocol import Message
from tests.daemon.web.fake_stats import FakeStats
from tests.support.fake_stats import info
from tests.support.waiting import WAIT_S


class FakeCommands:
    """Answers as `Commands` does, and keeps what it was asked for."""

    def __init__(self, fake: FakeStats) -> None:
        self.stats = fake.read
        self.asked: list[Message] = []

    async def infos(self, table: str) -> list[dict[str, Any]]:
        return [info(table)]

    async def run(self, request: Message, caller: Caller) -> Answer:
        self.asked.append(request)
        return Answer({"path": "/saved/1.checkpoint"} if request["command"] == "checkpoint" else {})


class Served:
    """Serves in a thread of its own until `close`."""

    def __init__(self, fake: FakeStats, token_path: pathlib.Path, port: int = 0) -> None:
        self.commands = FakeCommands(fake)
        self._loop = asyncio.new_event_loop()
        self._workers = Workers()
        site = Site(
            Endpoint(host="127.0.0.1", port=port), None, str(token_path), cast(Commands, self.commands), self._workers
        )
        self._site = site
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._run(site.start())
        self.address = site.address
        self.token = token_path.read_text(encoding="ascii").strip()

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    async def _end(self) -> None:
        self._site.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
            await asyncio.sleep(0)  # what they closed is let go in the loop's next round
        for transport in list(vars(self._loop)["_transports"].values()):
            transport.abort()  # its peer has not read the last answer yet
        await asyncio.sleep(0)

    def close(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
        assert self._workers.close()
