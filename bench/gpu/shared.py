"""Shared memory of the kinds that segments are made of, with every page allocated."""

import contextlib
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench import machine
from shmreplay import _core
from shmreplay.base.host_memory import show_bytes
from shmreplay.segments.segment import reserve

MFD_HUGETLB = 4


class NoMemory(RuntimeError):
    """This machine has no memory of that kind; the text says why."""


@dataclass(frozen=True)
class Shared:
    """A mapping, and the descriptor with which other processes can map the same memory."""

    fd: int
    address: int
    num_bytes: int


@contextlib.contextmanager
def shared(num_bytes: int, kind: str = "small pages") -> Iterator[Shared]:
    """Makes memory in "small pages", "huge pages" (as in our segments) or "hugetlb" (reserved by the administrator).

    Raises:
        NoMemory: there is none of that kind.
    """
    if machine.available_bytes() < num_bytes + num_bytes // 4:
        raise NoMemory(f"{show_bytes(num_bytes)} of memory are not to be had")
    fd = os.memfd_create("shmreplay-bench", os.MFD_CLOEXEC | (MFD_HUGETLB if kind == "hugetlb" else 0))
    try:
        try:
            if kind == "hugetlb":
                os.ftruncate(fd, num_bytes)
                os.posix_fallocate(fd, 0, num_bytes)
            else:
                os.ftruncate(fd, num_bytes)
                if kind == "huge pages" and (refused := _core.take_huge_pages(fd, 0, num_bytes)):
                    raise NoMemory(f"the kernel gives no huge pages: {os.strerror(refused)}")
                reserve(fd, num_bytes)
        except OSError as error:
            raise NoMemory(f"the kernel gives none: {error.strerror}") from error
        with mapped(fd, num_bytes) as address:
            yield Shared(fd, address, num_bytes)
    finally:
        os.close(fd)


@contextlib.contextmanager
def mapped(fd: int, num_bytes: int, prot: int = mmap.PROT_READ | mmap.PROT_WRITE) -> Iterator[int]:
    """Maps the memory during the block, touches every page, and yields the address."""
    mapping = mmap.mmap(fd, num_bytes, prot=prot)
    array = np.frombuffer(mapping, np.uint8)
    array[:: mmap.PAGESIZE].sum()
    try:
        yield int(array.ctypes.data)
    finally:
        del array
        mapping.close()
