"""What the doctor makes of files of the machine, read from trees made for the test."""

from __future__ import annotations

import errno
import os
import pathlib
import platform
import resource

import pytest

from shmreplay.clients.cli.machine import machine_checks
from shmreplay.clients.cli.machine.host_files import HostFiles

UID = 54321  # nobody of this machine, and none of the system


class FakeHost(HostFiles):
    """A machine of a few files."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(str(root))

    def write(self, path: str, text: str = "") -> None:
        file = pathlib.Path(self.path(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


@pytest.fixture
def host(tmp_path: pathlib.Path) -> FakeHost:
    return FakeHost(tmp_path)


# --- logout ----------------------------------------------------------------------------------------------------------


def test_segments_of_users_go_at_a_logout_by_default(host: FakeHost) -> None:
    assert machine_checks.look_at_logout(host, UID).found == "no logind runs here"
    host.write("/run/systemd/seats/seat0")
    found = machine_checks.look_at_logout(host, UID)
    assert found.found == f"a daemon of user {UID} loses its segments at the last logout"
    assert found.remedy is not None
    assert f"loginctl enable-linger {UID}, " in found.remedy
    assert machine_checks.look_at_logout(host, 999).found == "uid 999 is a system user: its segments stay"
    host.write(f"/var/lib/systemd/linger/{UID}")
    assert machine_checks.look_at_logout(host, UID).found == f"lingering is enabled for {UID}: segments stay"


@pytest.mark.parametrize(
    ("files", "stays"),
    [
        ({"/etc/systemd/logind.conf": "[Login]\n#RemoveIPC=no\n"}, False),
        ({"/etc/systemd/logind.conf": "[Login]\nRemoveIPC = no\n"}, True),
        ({"/usr/lib/systemd/logind.conf": "[Login]\nRemoveIPC=no\n"}, True),
        ({"/usr/lib/systemd/logind.conf": "RemoveIPC=no", "/etc/systemd/logind.conf": "[Login]"}, False),
        ({"/etc/systemd/logind.conf": "RemoveIPC=no", "/etc/systemd/logind.conf.d/9.conf": "RemoveIPC=yes"}, False),
        ({"/usr/lib/systemd/logind.conf.d/5.conf": "RemoveIPC=no"}, True),
        (
            {
                "/usr/lib/systemd/logind.conf.d/9.conf": "RemoveIPC=yes",
                "/etc/systemd/logind.conf.d/5.conf": "RemoveIPC=no",
            },
            False,
        ),
        (
            {
                "/usr/lib/systemd/logind.conf.d/9.conf": "RemoveIPC=yes",
                "/etc/systemd/logind.conf.d/9.conf": "RemoveIPC=no",
            },
            True,
        ),
        ({"/etc/systemd/logind.conf.d/9.txt": "RemoveIPC=no"}, False),
    ],
)
def test_files_of_logind_go_over_each_other_as_systemd_has_it(
    host: FakeHost, files: dict[str, str], stays: bool
) -> None:
    host.write("/run/systemd/seats/seat0")
    for path, text in files.items():
        host.write(path, text)
    found = machine_checks.look_at_logout(host, UID)
    assert (found.found == "RemoveIPC=no: segments stay", found.remedy is None) == (stays, stays)


# --- memory ----------------------------------------------------------------------------------------------------------


def test_strict_overcommit_tells_what_is_left(host: FakeHost) -> None:
    assert machine_checks.look_at_overcommit(host).found == "mode unknown"
    host.write("/proc/sys/vm/overcommit_memory", "0\n")
    assert machine_checks.look_at_overcommit(host).remedy is None
    host.write("/proc/sys/vm/overcommit_memory", "2\n")
    host.write("/proc/meminfo", "CommitLimit:    4194304 kB\nCommitted_AS:  1048576 kB\n")
    found = machine_checks.look_at_overcommit(host)
    assert found.found == "mode 2: 3.0 GiB of 4.0 GiB left"
    assert found.remedy is not None


@pytest.mark.parametrize(
    ("option", "who"),
    [
        ("never", "the daemon asks for them itself"),
        ("advise", "the daemon asks for them itself"),
        ("within_size", "the mount gives them"),
        ("always", "the mount gives them"),
    ],
)
def test_huge_pages_that_there_are_will_be_used_whatever_the_mount_has(
    monkeypatch: pytest.MonkeyPatch, option: str, who: str
) -> None:
    monkeypatch.setattr(machine_checks, "why_no_huge_pages", lambda directory: None)
    monkeypatch.setattr(machine_checks, "huge_option", lambda directory: option)
    found = machine_checks.look_at_huge_pages("/dev/shm")
    assert (found.found, found.remedy) == (f"of 2.0 MiB, and they will be used: {who} (huge={option})", None)


def test_what_proc_does_not_tell_is_unknown_and_not_nothing(host: FakeHost) -> None:
    """As where /proc is hidden."""
    assert machine_checks.look_at_hugetlb(host).found == "unknown: /proc/meminfo does not tell"
    host.write("/proc/sys/vm/overcommit_memory", "2\n")
    assert machine_checks.look_at_overcommit(host).found == "mode 2: unknown: /proc/meminfo does not tell"


def test_huge_pages_that_are_set_aside_are_told_of(host: FakeHost) -> None:
    host.write("/proc/meminfo", "HugePages_Total:       0\n")
    assert machine_checks.look_at_hugetlb(host).found == "nothing is set aside"
    host.write("/proc/meminfo", "HugePages_Total:   512\nHugePages_Free:  256\nHugepagesize:       2048 kB\n")
    found = machine_checks.look_at_hugetlb(host)
    assert found.found == "1.0 GiB set aside, 512.0 MiB of it free"
    assert found.remedy is not None
    assert "vm.nr_hugepages=0" in found.remedy


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "is_few"), [("65530", False), ("4096", True), ("", False)])
def test_few_mappings_are_told_of(host: FakeHost, limit: str, is_few: bool) -> None:
    host.write("/proc/sys/vm/max_map_count", f"{limit}\n")
    found = machine_checks.look_at_mappings(host)
    assert found.found == (f"at most {limit}" if limit else "limit unknown")
    assert (found.remedy is not None) == is_few


@pytest.mark.parametrize(("limit", "is_few"), [(1024, True), (1048576, False), (resource.RLIM_INFINITY, False)])
def test_few_open_files_are_told_of(monkeypatch: pytest.MonkeyPatch, limit: int, is_few: bool) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, limit))
    assert (machine_checks.look_at_open_files().remedy is not None) == is_few


def test_limits_of_sizes_are_told_of_with_how_to_raise_them(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = ((machine_checks.look_at_file_size, "ulimit -f"), (machine_checks.look_at_address_space, "ulimit -v"))
    for look, remedy in looks:
        monkeypatch.setattr(resource, "getrlimit", lambda kind: (2**20, resource.RLIM_INFINITY))
        found = look()
        assert found.found == "at most 1.0 MiB"
        assert found.remedy is not None
        assert remedy in found.remedy
        monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert (look().found, look().remedy) == ("no limit", None)


def test_a_client_has_the_soft_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 65536))
    assert machine_checks.look_at_open_files().found == "at most 65536; a client 1024, unless ulimit -n raises it"


def test_a_proc_that_cannot_be_read_is_told_of_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_checks.look_at_proc().remedy is None
    monkeypatch.setattr(os, "readlink", lambda path: "1000000")
    assert machine_checks.look_at_proc().found == "it is that of another pid namespace"

    def hide() -> str:
        raise OSError(errno.ENOENT, "/proc/sys/kernel/random/boot_id cannot be read")

    monkeypatch.setattr(machine_checks, "boot_id", hide)
    found = machine_checks.look_at_proc()
    assert found.found == "/proc/sys/kernel/random/boot_id cannot be read"
    assert found.remedy is not None


def test_a_lockable_memory_that_is_bounded_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: UID)
    for limit, is_bounded in ((8 * 2**20, True), (resource.RLIM_INFINITY, False)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, limit=limit: (limit, limit))
        assert (machine_checks.look_at_locked_memory().remedy is not None) == is_bounded


@pytest.mark.parametrize(("release", "is_old"), [("5.2.21-generic", True), ("5.3.0", False), ("6.18.44-x", False)])
def test_a_kernel_without_pidfds_is_too_old(monkeypatch: pytest.MonkeyPatch, release: str, is_old: bool) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    assert (machine_checks.look_at_kernel().remedy is not None) == is_old


# --- containers ------------------------------------------------------------------------------------------------------


def test_a_container_is_told_what_to_share(host: FakeHost) -> None:
    assert machine_checks.look_at_container(host, {}).found == "none detected"
    host.write("/.dockerenv")
    found = machine_checks.look_at_container(host, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "container": "lxc"})
    assert found.found == "Docker, Kubernetes, lxc"
    assert found.remedy is not None
    assert "--pid=host" in found.remedy
