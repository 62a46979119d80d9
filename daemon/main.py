"""The console script shmreplayd: starts and stops the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace
from functools import partial

from shmreplay import _core
from shmreplay.base.reader_gone import until_reader_goes
from shmreplay.checkpoints.checkpoint_directory import EMBEDDED_LABEL
from shmreplay.daemon.arenas.access import Access
from shmreplay.daemon.arenas.registry import Registry
from shmreplay.daemon.checkpoints.checkpoints import Checkpoints
from shmreplay.daemon.config.configuration import ConfigError, DaemonConfig, read_config
from shmreplay.daemon.config.logs import configure_logs
from shmreplay.daemon.config.open_files import raise_limit
from shmreplay.daemon.control.commands import Commands
from shmreplay.daemon.control.control_server import ControlServer
from shmreplay.daemon.control.shared_state import SharedState
from shmreplay.daemon.control.socket_directory import make_socket_directory
from shmreplay.daemon.figures.long_waits import LongWaits
from shmreplay.daemon.figures.status import status_line
from shmreplay.daemon.loop import event_loop
from shmreplay.daemon.loop.unix_listener import UnixListener
from shmreplay.daemon.loop.workers import Workers
from shmreplay.daemon.process.activation import take_listener
from shmreplay.daemon.process.declared_tables import create_declared
from shmreplay.daemon.process.ignored_signals import ignore_signals
from shmreplay.daemon.process.instance_lock import InstanceLock
from shmreplay.daemon.process.leftovers import remove_leftovers
from shmreplay.daemon.process.notify import Notifier
from shmreplay.daemon.process.parent import Parent
from shmreplay.daemon.process.parent_watch import watch_parent
from shmreplay.daemon.process.reload import Reload
from shmreplay.daemon.process.stop_request import watch_for_stop
from shmreplay.daemon.process.summary import summary, summary_json
from shmreplay.daemon.web.site import Site
from shmreplay.errors import ShmReplayError
from shmreplay.protocol import package_version
from shmreplay.segments.segment import SegmentStore

log = logging.getLogger("shmreplayd")

MISCONFIGURED = 2  # exit code for a wrong configuration: a restart would fail again


class Daemon:
    """The life of one daemon. What it acquires at the start it releases at the end, in reverse order."""

    def __init__(
        self,
        config: DaemonConfig,
        workers: Workers,
        read: Callable[[], DaemonConfig],
        notifier: Notifier,
        passed: socket.socket | None,
    ) -> None:
        self._config = config
        self._workers = workers
        self._read = read
        self._notifier = notifier
        self._passed = passed
        self._stopped = asyncio.Event()
        self._hung_up = asyncio.Event()
        self._failure: str | None = None

    def stop(self, reason: str) -> None:
        """Makes `run` return soon, which drops all tables unless they are to be kept."""
        if not self._stopped.is_set():
            log.info("stopping: %s", reason)
            self._stopped.set()

    def fail(self, reason: str) -> None:
        """Makes `run` raise an error soon. The segments stay for the next daemon, as if this one had been killed."""
        self._failure = reason
        self._stopped.set()

    async def run(self) -> None:
        """Serves until it is stopped.

        Raises ShmReplayError or OSError if it cannot start, fails, or cannot save its last checkpoint. The segments
        then stay.
        """
        telling = asyncio.ensure_future(self._notifier.tell())
        try:
            await self._run()
        finally:
            telling.cancel()
            await asyncio.wait({telling})

    async def _run(self) -> None:
        config = self._config
        if config.embedded:
            self._watch_the_parent()
        else:
            self._handle_signals()
        with contextlib.ExitStack() as taken:
            store = SegmentStore(config.directory, config.pages)
            if (note := config.pages.check(store.directory)) is not None:
                log.info("%s", note)
            parent = None if config.parent_pid is None else Parent.of(config.parent_pid)
            lock = InstanceLock(store, config.instance, config.socket, parent)
            taken.callback(lock.release)
            if self._passed is None and make_socket_directory(config) and config.embedded:
                taken.callback(os.rmdir, os.path.dirname(config.socket))
            if config.embedded:
                remove_leftovers(store)
            registry = Registry(store, config.instance, config.group_id, self._workers, config.limits)
            checkpoints = Checkpoints(registry, self._workers, _label(config), config.checkpoints)
            await checkpoints.open()
            taken.callback(checkpoints.close)
            await registry.adopt(discard=config.discard)
            if not await self._fill(registry, checkpoints):
                await self._end(registry, checkpoints, keeps=config.keep_tables)
                return
            with (
                contextlib.closing(UnixListener(config.socket, config.group_id, self._passed)) as listener,
                contextlib.ExitStack() as shown,
            ):
                server = ControlServer(
                    listener, lambda num_clients: self._shared_state(registry, checkpoints, num_clients)
                )
                server.start(self.fail)
                await self._expose(server.shared, taken)
                await self._show(server.shared, shown)
                checkpoints.start()
                waits = LongWaits(registry, self._workers)
                waits.start()
                taken.callback(waits.close)
                self._notifier.describe = lambda: status_line(registry, checkpoints, server.shared.num_clients())
                self._announce()
                reload = Reload(config, self._read, registry, checkpoints, server.shared, self._workers)
                reloading = asyncio.ensure_future(self._reload_when_asked(reload))
                await self._stopped.wait()
                self._notifier.describe = lambda: _describe_stop(checkpoints)
                self._notifier.stopping()
                reloading.cancel()
                await asyncio.wait({reloading})
                await server.stop_accepting()
            if self._failure is not None:
                raise ShmReplayError(self._failure)
            try:
                await self._end(registry, checkpoints, keeps=reload.config.keep_tables)
            finally:
                await server.close()

    async def _fill(self, registry: Registry, checkpoints: Checkpoints) -> bool:
        """Restores and creates the tables that the configuration asks for.

        Returns False if the daemon is stopped meanwhile, which cancels that: it may take minutes.
        """
        filling = asyncio.ensure_future(self._restore_and_create(registry, checkpoints))
        stopping = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait({filling, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if filling.done():
            filling.result()
            return True
        self._notifier.stopping()
        await registry.stop_creating()
        await asyncio.wait({filling})
        if (error := filling.exception()) is not None:
            log.info("stopped during the start: %s", error)
        return False

    async def _restore_and_create(self, registry: Registry, checkpoints: Checkpoints) -> None:
        config = self._config
        await checkpoints.begin(restore=config.restore, is_embedded=config.embedded, on_progress=self._tell_of_start)
        await create_declared(config, registry, self._tell_of_start)

    @staticmethod
    async def _end(registry: Registry, checkpoints: Checkpoints, *, keeps: bool) -> None:
        """Saves the last checkpoint, if configured, and drops the tables, or `keeps` them."""
        await registry.stop_creating()
        await checkpoints.finish()
        await (registry.leave() if keeps else registry.close())

    def _watch_the_parent(self) -> None:
        if self._config.stop_fd is not None:
            watch_for_stop(self._config.stop_fd, lambda: self.stop("the parent asked for it"))
        parent = self._config.parent_pid
        if parent is not None and not watch_parent(parent, lambda: self.stop(f"parent process {parent} has ended")):
            raise ShmReplayError(f"parent process {parent} has ended already")

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGTERM and signal.getsignal(number) is signal.SIG_IGN:
                continue  # our starter wants it ignored, as nohup does
            if number == signal.SIGHUP and self._config.file is not None:
                loop.add_signal_handler(number, self._hung_up.set)
            else:
                loop.add_signal_handler(number, self.stop, signal.Signals(number).name)

    async def _reload_when_asked(self, reload: Reload) -> None:
        """Reloads after each SIGHUP, one reload at a time."""
        while True:
            await self._hung_up.wait()
            self._hung_up.clear()
            self._notifier.reloading()
            try:
                await reload.run()
            except Exception:  # a fault of ours must not stop the daemon
                log.exception("the configuration was not reloaded")
            self._notifier.ready()

    async def _expose(self, shared: SharedState, taken: contextlib.ExitStack) -> None:
        """Serves metrics if configured. Imports prometheus_client only then."""
        config = self._config
        if config.metrics is None:
            return
        try:
            from shmreplay.daemon.figures.exposition import Exposition
        except ModuleNotFoundError as error:
            raise ShmReplayError("metrics.listen needs prometheus_client: pip install 'shmreplay[metrics]'") from error
        stats = partial(shared.commands.stats, items=True)
        exposition = Exposition(config.metrics, config.group_id, stats, self._workers)
        taken.callback(exposition.close)
        await exposition.start()

    async def _show(self, shared: SharedState, shown: contextlib.ExitStack) -> None:
        """Serves the web page if configured."""
        config = self._config
        if config.web is not None:
            site = Site(config.web, config.group_id, f"{config.socket}.token", shared.commands, self._workers)
            shown.callback(site.close)
            await site.start()

    def _tell_of_start(self, describe: Callable[[], str]) -> None:
        self._notifier.describe = lambda: f"starting: {describe()}"

    def _shared_state(
        self, registry: Registry, checkpoints: Checkpoints, num_clients: Callable[[], int]
    ) -> SharedState:
        config = self._config
        commands = Commands(registry, self._workers, config.instance, num_clients, self.stop, checkpoints)
        access = Access(config.group_id, config.group_name)
        return SharedState(
            commands, access, registry.reaper, self._workers, config.instance, config.max_clients, num_clients
        )

    def _announce(self) -> None:
        """Tells the log, the parent and systemd that clients can connect."""
        config = self._config
        log.info("shmreplayd %s, instance %r, listens at %s", package_version(), config.instance, config.socket)
        if config.ready_fd is not None:
            os.write(config.ready_fd, b"ready\n")
            os.close(config.ready_fd)
        self._notifier.ready()


def _describe_stop(checkpoints: Checkpoints) -> str:
    return f"stopping: {checkpoints.describe()}" if checkpoints.is_saving else "stopping"


def _label(config: DaemonConfig) -> str:
    """The label of this daemon's checkpoints. All embedded daemons share one: each start has a new instance."""
    return EMBEDDED_LABEL if config.embedded else config.instance


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the daemon. Returns its exit code.

    0: a clean stop. 1: it cannot start or go on, with one line on stderr. 2: the configuration is wrong, with one line
    for each mistake. 141: the reader of its output has closed the pipe.
    """
    return until_reader_goes(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    try:
        config = read_config(arguments)
    except ConfigError as error:
        for problem in error.problems:
            print(f"shmreplayd: {problem}", file=sys.stderr)
        return MISCONFIGURED
    if config.is_check:
        print(summary_json(config) if config.is_json else summary(config))
        return 0
    if config.embedded:
        ignore_signals()
    workers = Workers()
    # systemd's variables in the environment of an embedded daemon are meant for its parent.
    environment: MutableMapping[str, str] = {} if config.embedded else os.environ
    notifier = Notifier(environment)
    try:
        raise_limit()
        passed = take_listener(environment)
        if passed is not None:
            config = replace(config, socket=passed.getsockname())
        configure_logs(config.log_level, config.log_format, config.instance)
        # It forks, so it must run before there are threads.
        _core.prove_robust_lock()
        event_loop.run(Daemon(config, workers, lambda: read_config(arguments), notifier, passed).run())
        code = 0
    except (ShmReplayError, OSError, RuntimeError, ValueError) as error:
        notifier.failed(str(error))
        print(f"shmreplayd: {error}", file=sys.stderr)
        code = 1
    notifier.close()
    if not workers.close():
        # A thread still waits for a lock whose holder is stopped. Everything else is released, so end without it.
        logging.shutdown()
        sys.stderr.flush()
        os._exit(code)
    return code
