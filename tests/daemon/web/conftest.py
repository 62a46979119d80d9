"""The page of a made-up daemon, a real daemon with a page, and a browser to look at them with."""

from collections.abc import Iterator

import pytest

from tests.daemon.web.browser import Browser, find_browser
from tests.daemon.web.fake_stats import FakeStats
from tests.daemon.web.served import Served
from tests.support.daemons import DaemonProcess, new_daemon


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for all tests of a file."""
    binary = find_browser()
    if binary is None:
        pytest.skip("no Chromium is installed (apt-get install chromium-headless-shell)")
    browser = Browser(binary, tmp_path_factory.mktemp("browser") / "profile")
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def fake() -> FakeStats:
    """50 tables and 1,000 clients."""
    return FakeStats(50, 1000, {"saved_s_ago": 320.0, "seconds": 2.1, "bytes": 3 * 2**30, "error": None})


@pytest.fixture(scope="module")
def served(fake: FakeStats, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The page of `fake`."""
    served = Served(fake, tmp_path_factory.mktemp("served") / "token")
    yield served
    served.close()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A real daemon with a page at a port and checkpoints. Tests make tables of their own."""
    folder = tmp_path_factory.mktemp("shown")
    daemon = new_daemon(folder / "shown.sock")
    yield daemon.start("--web", "127.0.0.1:0", "--checkpoint-dir", str(folder / "saved"))
    daemon.clean_up()
