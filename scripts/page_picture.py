"""docs/images/page.png: the daemon's web page, while actors and a learner work on two tables of a real daemon.

usage: make page-picture

Needs a Chromium: apt-get install chromium-headless-shell. It takes about a minute, because the page's charts begin when
the page is opened. The figures in the picture are those of this run, in which the actors pause between their steps.
"""

import multiprocessing
import os
import pathlib
import sys
import tempfile
import threading

import numpy as np

import shmreplay as sr
from tests.daemon.web.browser import Browser, find_browser
from tests.daemon.web.test_site import asker_of
from tests.support.daemons import DaemonProcess

PICTURE = pathlib.Path(__file__).parent.parent / "docs" / "images" / "page.png"
SIZE = (1280, 742)
WATCHED_S = 58.0  # the charts show a minute
NUM_ACTORS = 4

STEP = {
    "observation": sr.ArraySpec((24,), "float32"),
    "action": sr.ArraySpec((), "int64"),
    "reward": sr.ArraySpec((), "float32"),
    "terminated": sr.ArraySpec((), "bool"),
}
TABLES = [
    sr.Table(
        "replay",
        STEP,
        max_size=50_000,
        item=sr.NStep(3),
        sampler=sr.selectors.Prioritized(0.6),
        rate_limiter=sr.rate_limiters.SampleToInsertRatio(4, 1000, error_buffer=4000),
    ),
    sr.Table.queue("unrolls", STEP, max_size=64, item=sr.Unroll(20)),
]


def act(address: str, number: int) -> None:
    """Plays until it is killed: two of three actors feed `replay`, the others `unrolls`."""
    rng = np.random.default_rng(number)
    pause = threading.Event()
    with sr.connect(address) as client, client.table(TABLES[number % 3 == 2].name).writer() as writer:
        while True:
            for t in range(200):
                observation = rng.normal(size=24).astype(np.float32)
                writer.append({"observation": observation, "action": t % 4, "reward": 1.0, "terminated": t == 199})
                pause.wait(rng.exponential(0.0015))
            writer.end_episode({"observation": np.zeros(24, np.float32)})


def learn(address: str) -> None:
    """Samples from both tables until it is killed."""
    rng = np.random.default_rng(0)
    with sr.connect(address) as client:
        replay, unrolls = client.table("replay"), client.table("unrolls")
        while True:
            batch = replay.sample(256)
            replay.update_priorities(batch.keys, rng.exponential(size=256))
            if unrolls.can_sample(4):
                unrolls.sample(4)


def take_picture(browser: Browser, address: str) -> None:
    page = browser.open(address, *SIZE, prefers_color_scheme="light")
    page.wait_until("document.querySelectorAll('tbody tr').length === 2")
    threading.Event().wait(WATCHED_S)
    page.wait_until("document.querySelector('#state').textContent === 'live'")
    PICTURE.parent.mkdir(exist_ok=True)
    page.screenshot(PICTURE)
    page.close()


def main() -> None:
    if (binary := find_browser()) is None:
        sys.exit("no Chromium is installed: apt-get install chromium-headless-shell")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        daemon = DaemonProcess(os.path.join(folder, "shmreplay.sock"), "picture")
        workers = [context.Process(target=act, args=(daemon.socket, number)) for number in range(NUM_ACTORS)]
        workers.append(context.Process(target=learn, args=(daemon.socket,)))
        browser = Browser(binary, pathlib.Path(folder) / "profile")
        try:
            daemon.start("--web", "127.0.0.1:0")
            with daemon.connect() as client:
                client.create_tables(TABLES)
            for worker in workers:
                worker.start()
            take_picture(browser, asker_of(daemon).address)
        finally:
            browser.close()
            for worker in workers:
                if worker.pid is not None:
                    worker.kill()
                    worker.join()
            daemon.clean_up()


if __name__ == "__main__":
    main()
