"""PagePolicy: huge pages that are asked for, required or not used, memory nodes, and the texts if there are none."""

import errno
import os
from collections.abc import Iterator

import pytest

from shmreplay import _core
from shmreplay.base.host_memory import HUGE_PAGE_BYTES, whole_huge_bytes
from shmreplay.errors import ShmReplayError
from shmreplay.segments import page_policy
from shmreplay.segments.page_policy import PagePolicy, huge_option, why_no_huge_pages
from shmreplay.segments.segment import SLICE_BYTES, reserve

SHM = "/dev/shm"
SIZE = 2 * SLICE_BYTES + HUGE_PAGE_BYTES // 2

needs_huge_pages = pytest.mark.skipif(
    why_no_huge_pages(SHM) is not None, reason=f"no huge pages in {SHM} here: {why_no_huge_pages(SHM)}"
)


@pytest.fixture
def fd() -> Iterator[int]:
    file = os.open(SHM, os.O_TMPFILE | os.O_RDWR, 0o600)
    yield file
    os.close(file)


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A kernel that has no huge pages; it notes the offsets that it was asked for."""
    asked: list[int] = []

    def refuse(fd: int, offset: int, num_bytes: int) -> int:
        asked.append(offset)
        return errno.EINVAL

    monkeypatch.setattr(_core, "take_huge_pages", refuse)
    return asked


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "num_memory_nodes", lambda: 2)


def num_reserved(fd: int) -> int:
    return os.fstat(fd).st_blocks * 512


def test_other_words_than_those_known_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^huge_pages is 'always'; expected 'auto', 'never', 'require'$"):
        PagePolicy(huge_pages="always")
    with pytest.raises(ValueError, match=r"^numa is 2; expected 'default', 'interleave'$"):
        PagePolicy(numa=2)  # type: ignore[arg-type]


def test_all_but_the_end_of_a_segment_can_be_huge() -> None:
    assert [whole_huge_bytes(n) for n in (0, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, 5 * HUGE_PAGE_BYTES + 4096)] == [
        0, 0, HUGE_PAGE_BYTES, 5 * HUGE_PAGE_BYTES,
    ]  # fmt: skip


@needs_huge_pages
def test_a_segment_is_reserved_in_huge_pages_but_for_its_end(fd: int) -> None:
    told: list[int] = []
    assert reserve(fd, SIZE, told.append, PagePolicy("require")) == 0
    assert told == [SLICE_BYTES, 2 * SLICE_BYTES, SIZE]
    assert num_reserved(fd) == SIZE
    assert _core.huge_bytes_of(fd, SIZE) == whole_huge_bytes(SIZE)
    PagePolicy("require").check_taken(fd, "segment x")
    assert not any(os.pread(fd, SIZE, 0)), "it begins with zeros"


@pytest.mark.skipif(huge_option(SHM) != "never", reason=f"the mount of {SHM} gives huge pages by itself")
def test_none_are_asked_for_by_never(fd: int, refusal: list[int]) -> None:
    assert reserve(fd, SIZE, None, PagePolicy("never")) == 0
    assert refusal == []
    assert num_reserved(fd) == SIZE
    assert _core.huge_bytes_of(fd, SIZE) == 0


def test_a_kernel_that_refuses_is_asked_once_and_small_pages_are_reserved(fd: int, refusal: list[int]) -> None:
    assert reserve(fd, SIZE, None, PagePolicy("auto")) == errno.EINVAL
    assert refusal == [0]
    assert num_reserved(fd) == SIZE
    PagePolicy("auto").check_taken(fd, "segment x")


@pytest.mark.skipif(huge_option(SHM) != "never", reason=f"the mount of {SHM} gives huge pages by itself")
def test_a_segment_that_got_too_few_is_refused_where_they_are_required(fd: int, refusal: list[int]) -> None:
    reserve(fd, SIZE, None, PagePolicy("require"))
    text = r"^segment x has 0 B in huge pages instead of 128.0 MiB, and huge_pages is 'require': .*; free some, or use"
    with pytest.raises(ShmReplayError, match=text):
        PagePolicy("require").check_taken(fd, "segment x")


@pytest.mark.skipif(huge_option(SHM) != "never", reason=f"the mount of {SHM} gives huge pages by itself")
def test_where_there_are_none_and_they_are_required_the_daemon_does_not_begin(refusal: list[int]) -> None:
    text = (
        rf"there are none in {SHM}: the kernel says 'Invalid argument' \(Linux .*huge=never\); mount -t tmpfs -o huge="
    )
    with pytest.raises(ShmReplayError, match=text):
        PagePolicy("require").check(SHM)
    assert PagePolicy("auto").check(SHM) is None


def test_a_machine_that_denies_them_to_all_shared_memory_is_told_apart(
    refusal: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_policy, "_shmem_enabled", lambda: "deny")
    if huge_option(SHM) == "never":
        assert "shmem_enabled says deny" in (why_no_huge_pages(SHM) or "")


def test_a_file_system_without_files_of_ours_says_so() -> None:
    with pytest.raises(ShmReplayError, match=r"^/proc takes no file of a segment: "):
        why_no_huge_pages("/proc")


@pytest.mark.skipif(_core.num_memory_nodes() > 1, reason="this machine has several memory nodes")
def test_one_memory_node_is_nothing_to_spread_over_and_says_so(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "interleave", lambda fd, num_bytes: pytest.fail("it was asked for"))
    assert "this machine has one memory node" in (PagePolicy(numa="interleave").check(SHM) or "")
    reserve(fd, 4096, None, PagePolicy(numa="interleave"))


def test_a_segment_is_spread_before_it_has_any_page(fd: int, two_nodes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    spread: list[tuple[int, int]] = []

    def interleave(fd: int, num_bytes: int) -> int:
        spread.append((num_bytes, num_reserved(fd)))
        return 0

    monkeypatch.setattr(_core, "interleave", interleave)
    policy = PagePolicy("never", "interleave")
    assert policy.check(SHM) is None
    reserve(fd, 8192, None, policy)
    assert spread == [(HUGE_PAGE_BYTES, 0), (8192, 0)]


def test_a_kernel_that_refuses_to_spread_is_told_of(fd: int, two_nodes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "interleave", lambda fd, num_bytes: errno.EPERM)
    text = r"^numa is 'interleave', but the kernel refuses mbind: Operation not permitted; .*--cap-add SYS_NICE"
    with pytest.raises(ShmReplayError, match=text):
        PagePolicy(numa="interleave").check(SHM)
    with pytest.raises(ShmReplayError, match=text):
        reserve(fd, 8192, None, PagePolicy(numa="interleave"))
