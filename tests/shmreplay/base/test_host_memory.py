"""How much memory there is: file system, machine, cgroups of both versions, read from trees made for the test."""

import os
import pathlib

import pytest

from shmreplay.base import host_memory
from shmreplay.base.host_memory import check_memory, check_room, rooms, show_bytes
from shmreplay.errors import ShmReplayError

MIB = 2**20
GIB = 2**30


class FakeHost:
    """A /proc and a cgroup tree below a temporary folder."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.proc = root / "proc"
        self.cgroup = root / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        self.mounts = [f"1 0 0:1 / {root} rw - tmpfs tmpfs rw"]
        self.write_memory(total=64 * GIB, available=32 * GIB)
        self.write_mounts()

    def write_memory(self, total: int, available: int) -> None:
        text = f"MemTotal: {total // 1024} kB\nMemFree: 12 kB\nMemAvailable: {available // 1024} kB\n"
        (self.proc / "meminfo").write_text(text)

    def write_mounts(self) -> None:
        (self.proc / "self" / "mountinfo").write_text("\n".join(self.mounts) + "\n")

    def mount_cgroup(self, kind: str, root: str = "/", options: str = "rw") -> None:
        self.mounts.append(f"2 0 0:2 {root} {self.cgroup} rw shared:1 - {kind} cgroup {options}")
        self.write_mounts()

    def join(self, lines: str) -> None:
        (self.proc / "self" / "cgroup").write_text(lines)

    def group(self, path: str, **files: str) -> None:
        folder = self.cgroup / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(text)

    def check(self, num_bytes: int) -> None:
        check_room(num_bytes, str(self.root), "table 'replay'", str(self.proc))


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    # The file system itself is as roomy as it happens to be; here it shall never be the narrowest.
    roomy = host_memory.MemoryLimit("the file system", 2**60, 2**60, "enlarge it")
    monkeypatch.setattr(host_memory, "_file_system_room", lambda directory: roomy)
    return FakeHost(tmp_path)


def test_enough_of_everything_passes(host: FakeHost) -> None:
    host.check(32 * GIB)


def test_too_little_free_memory_says_needed_total_and_free(host: FakeHost) -> None:
    host.write_memory(total=8 * GIB, available=3 * GIB)
    with pytest.raises(ShmReplayError) as raised:
        host.check(4 * GIB)
    text = str(raised.value)
    assert "table 'replay' needs 4.0 GiB" in text
    assert "this machine's memory has 8.0 GiB in all and 3.0 GiB free" in text
    assert "max_size" in text


def test_memory_of_a_process_is_not_bounded_by_the_file_system(host: FakeHost) -> None:
    host.write_memory(total=8 * GIB, available=GIB)
    check_memory(GIB - 1, "a copy", str(host.proc))
    with pytest.raises(ShmReplayError) as error:
        check_memory(2 * GIB, "a copy", str(host.proc))
    assert str(error.value) == (
        "a copy needs 2.0 GiB of memory, but this machine's memory has 8.0 GiB in all and 1.0 GiB free; "
        "free some memory"
    )


def test_a_cgroup_of_version_2_limits_and_its_page_cache_does_not_count(host: FakeHost) -> None:
    host.mount_cgroup("cgroup2")
    host.join("0::/jobs/train\n")
    usage = {"memory__current": f"{900 * MIB}\n", "memory__stat": f"anon 5\nfile 9\ninactive_file {300 * MIB}\n"}
    host.group("jobs/train", memory__max=f"{1024 * MIB}\n", **usage)
    host.check(424 * MIB)
    with pytest.raises(ShmReplayError, match=r"cgroup/jobs/train has 1.0 GiB in all and 424.0 MiB free"):
        host.check(425 * MIB)


def test_a_limit_of_a_parent_cgroup_counts(host: FakeHost) -> None:
    host.mount_cgroup("cgroup2")
    host.join("0::/jobs/train\n")
    host.group("jobs", memory__max=f"{100 * MIB}\n", memory__current="0\n")
    host.group("jobs/train", memory__max="max\n", memory__current="0\n")
    with pytest.raises(ShmReplayError, match=r"cgroup/jobs has 100.0 MiB in all"):
        host.check(200 * MIB)


def test_a_cgroup_of_version_1_limits_up_to_its_root(host: FakeHost) -> None:
    host.mount_cgroup("cgroup", options="rw,memory")
    host.join("5:cpu:/x\n4:cpuset,memory:/docker/abc\n0::/\n")
    unlimited = {"memory__limit_in_bytes": f"{2**63 - 4096}\n", "memory__usage_in_bytes": "0\n"}
    host.group("docker/abc", **unlimited)
    host.check(GIB)
    host.group("docker", memory__limit_in_bytes=f"{512 * MIB}\n", memory__usage_in_bytes=f"{500 * MIB}\n")
    with pytest.raises(ShmReplayError, match=r"cgroup/docker has 512.0 MiB in all and 12.0 MiB free"):
        host.check(GIB)


def test_a_container_that_sees_its_own_cgroup_as_the_root_is_understood(host: FakeHost) -> None:
    host.mount_cgroup("cgroup", root="/docker/abc", options="rw,memory")
    host.join("4:memory:/docker/abc\n")
    host.group("", memory__limit_in_bytes=f"{64 * MIB}\n", memory__usage_in_bytes="0\n")
    with pytest.raises(ShmReplayError, match=r"64.0 MiB in all"):
        host.check(65 * MIB)


def test_a_cgroup_path_outside_of_what_is_mounted_falls_back_to_the_visible_root(host: FakeHost) -> None:
    host.mount_cgroup("cgroup2")
    host.join("0::/../../elsewhere\n")
    host.group("", memory__max=f"{64 * MIB}\n", memory__current="0\n")
    with pytest.raises(ShmReplayError, match=r"64.0 MiB in all"):
        host.check(65 * MIB)


def test_the_narrowest_bound_is_named(host: FakeHost) -> None:
    host.write_memory(total=GIB, available=100 * MIB)
    host.mount_cgroup("cgroup2")
    host.join("0::/\n")
    host.group("", memory__max=f"{50 * MIB}\n", memory__current="0\n")
    with pytest.raises(ShmReplayError, match=r"cgroup has 50.0 MiB"):
        host.check(GIB)


def test_huge_pages_are_set_aside_so_other_memory_does_not_count(host: FakeHost) -> None:
    host.mounts = [f"1 0 0:1 / {host.root} rw - hugetlbfs none rw"]
    host.write_mounts()
    host.write_memory(total=GIB, available=0)
    host.check(4 * GIB)


def test_a_disk_is_refused(host: FakeHost) -> None:
    host.mounts = [f"1 0 0:1 / {host.root} rw - ext4 /dev/sda1 rw"]
    host.write_mounts()
    with pytest.raises(ShmReplayError, match="it is on ext4, and shared memory needs a tmpfs"):
        host.check(1)


def test_the_mount_of_a_directory_is_the_innermost_and_latest(tmp_path: pathlib.Path) -> None:
    proc = tmp_path / "self"
    proc.mkdir()
    inner = tmp_path / "a b"
    inner.mkdir()
    escaped = str(inner).replace(" ", "\\040")
    lines = [
        "1 0 0:1 / / rw - ext4 x rw",
        f"2 1 0:2 / {escaped} rw - tmpfs x rw",
        f"3 1 0:3 / {escaped} rw - ramfs x rw",
    ]
    (proc / "mountinfo").write_text("\n".join(lines))
    found = host_memory.mount_of(str(inner), str(tmp_path))
    assert found is not None
    assert (found.kind, found.point) == ("ramfs", str(inner))
    outer = host_memory.mount_of(str(tmp_path), str(tmp_path))
    assert outer is not None
    assert outer.kind == "ext4"


def test_a_proc_that_shows_nothing_leaves_the_file_system_alone(tmp_path: pathlib.Path) -> None:
    found = rooms("/dev/shm", str(tmp_path))
    assert [room.name for room in found] == ["the file system at /dev/shm"]
    status = os.statvfs("/dev/shm")
    assert found[0].total_bytes == status.f_blocks * status.f_frsize


def test_the_real_machine_has_a_file_system_and_memory() -> None:
    names = [room.name for room in rooms("/dev/shm")]
    assert names[:2] == ["the file system at /dev/shm", "this machine's memory"]
    check_room(1, "/dev/shm", "a byte")


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (67_005_030, "63.9 MiB"),
        (3 * 2**29, "1.5 GiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_sizes_are_shown_for_people(num_bytes: int, text: str) -> None:
    assert show_bytes(num_bytes) == text
