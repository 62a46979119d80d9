"""Huge pages of a real daemon: on every kind of mount, in its figures, and in its clients' mappings."""

import json
import subprocess
import sys

import pytest

import shmreplay as sr
from shmreplay import _core
from shmreplay.base.host_memory import whole_huge_bytes
from shmreplay.segments.page_policy import huge_option, why_no_huge_pages
from tests.support.daemons import DaemonProcess, StartDaemon
from tests.support.namespaces import in_own_mounts, needs_mount

SHM = "/dev/shm"
MAX_SIZE = 20_000  # some 8 MiB of steps
# A server on the mounted directory, and a client of it whose pages of the index are those that its process has mapped.
SCRIPT = """
import json, sys
import numpy as np
import shmreplay as sr

def mapped_as_huge(name):
    found, is_it = 0, False
    for line in open("/proc/self/smaps"):
        if "-" in line.split(" ")[0]:
            is_it = line.rstrip().endswith(name)
        elif is_it and line.startswith("ShmemPmdMapped:"):
            found += int(line.split()[1]) * 1024
    return found

table = sr.Table("t", {"x": sr.ArraySpec((100,), "float32")}, 20_000)
with sr.Server([table], directory="/mnt", huge_pages=sys.argv[1]) as server, server.client() as client:
    handle = client.table("t")
    for _ in range(20):
        handle.insert_batch({"x": np.ones((1000, 100), np.float32)})
    handle.sample(256)
    stats = client.stats()["arenas"]["t"]
    figures = {name: stats[name] for name in ("index_bytes", "data_bytes", "huge_bytes")}
    print(json.dumps({**figures, "index": mapped_as_huge(".index"), "data": mapped_as_huge(".data")}))
"""


def on_a_mount(option: str, huge_pages: str) -> "subprocess.CompletedProcess[str]":
    command = [*in_own_mounts(f"mount -t tmpfs -o size=256m,huge={option} tmpfs /mnt"), sys.executable, "-c", SCRIPT]
    return subprocess.run([*command, huge_pages], capture_output=True, text=True, check=False, cwd="/")


@needs_mount
@pytest.mark.parametrize("option", ["within_size", "always", "advise", "never"])
@pytest.mark.one_quick
def test_segments_are_huge_on_every_mount_and_in_the_clients_of_them(option: str) -> None:
    ran = on_a_mount(option, "require")
    if ran.returncode != 0 and "but there are none in /mnt" in ran.stderr:
        pytest.skip(f"this kernel has no huge pages on a tmpfs with huge={option}: {ran.stderr.splitlines()[-1]}")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["huge_bytes"] >= whole_huge_bytes(found["index_bytes"]) + whole_huge_bytes(found["data_bytes"])
    assert found["index"] >= whole_huge_bytes(found["index_bytes"]) > 0
    assert found["data"] > 0


@needs_mount
@pytest.mark.long
def test_small_pages_are_enough_if_no_huge_pages_are_asked_for() -> None:
    ran = on_a_mount("never", "never")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert (found["huge_bytes"], found["index"], found["data"]) == (0, 0, 0)


@pytest.mark.skipif(why_no_huge_pages(SHM) is not None, reason=f"no huge pages in {SHM}: {why_no_huge_pages(SHM)}")
@pytest.mark.long
def test_an_arena_that_is_taken_over_says_anew_what_is_huge(make_daemon: StartDaemon) -> None:
    daemon = make_daemon().start("--huge-pages", "require")
    with daemon.connect() as client:
        client.create_tables([sr.Table("t", {"x": sr.ArraySpec((100,), "float32")}, MAX_SIZE)])
        before = client.stats()["arenas"]["t"]["huge_bytes"]
    assert before > 0
    assert "in huge pages" in daemon.log()
    daemon.kill()
    daemon.start()
    with daemon.connect() as client:
        assert client.stats()["arenas"]["t"]["huge_bytes"] == before


def test_words_that_are_none_are_refused_before_anything_is_started() -> None:
    with pytest.raises(ValueError, match=r"^huge_pages is 'yes'; expected 'auto', 'never', 'require'$"):
        sr.Server([], huge_pages="yes")
    with pytest.raises(ValueError, match=r"^numa is 'all'; expected 'default', 'interleave'$"):
        sr.Server([], numa="all")


def test_interleaving_says_in_the_log_what_it_changes_and_tables_work(make_daemon: StartDaemon) -> None:
    daemon = make_daemon().start("--numa", "interleave")
    with daemon.connect() as client:
        client.create_tables([sr.Table("t", {"x": sr.ArraySpec((), "int64")}, 100)])
        client.table("t").insert({"x": 1})
        assert client.table("t").sample(1).data["x"].tolist() == [1]
    assert ("this machine has one memory node" in daemon.log()) == (_core.num_memory_nodes() < 2)


def test_a_daemon_without_huge_pages_says_once_that_it_takes_small_ones(daemon: DaemonProcess) -> None:
    with daemon.connect() as client:
        for name in ("a", "b"):
            client.create_tables([sr.Table(name, {"x": sr.ArraySpec((100,), "float32")}, MAX_SIZE)])
    has_none = why_no_huge_pages(SHM) is not None and huge_option(SHM) in ("never", "advise")
    assert daemon.log().count("not all pages in") == (1 if has_none else 0)
