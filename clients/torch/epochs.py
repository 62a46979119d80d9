"""Epochs: which epoch each iteration of a data set has, agreed on by the processes that iterate."""

from __future__ import annotations

import multiprocessing.context
import os
from typing import Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

MAX_EPOCH = 2**30 - 1
_MAX_CALL, _MAX_ITERATOR = 2**11 - 1, 2**22 - 1
_NUM_SLOTS = 256  # workers beyond that rely on the iterator's number alone

_TOLD, _LAST, _SLOTS = 0, 1, 2  # places in the words


class _Word(NamedTuple):
    """What `set` leaves, or an iteration that began; both fit into one word.

    Attributes:
        call: number of the call of `set` that this is, or that the iteration follows; from 1 on.
        epoch: that was set, or of the iteration.
        iterator: tells the iterations of a loader from those of others; 0 if it was not in a worker.
    """

    call: int = 0
    epoch: int = 0
    iterator: int = 0

    def packed(self) -> int:
        return (self.call * (MAX_EPOCH + 1) + self.epoch) * (_MAX_ITERATOR + 1) + self.iterator

    @classmethod
    def unpacked(cls, word: int) -> _Word:
        rest, iterator = divmod(word, _MAX_ITERATOR + 1)
        return cls(*divmod(rest, MAX_EPOCH + 1), iterator)


class Epochs:
    """The epoch that was set, and that of the last iteration.

    An iteration of a DataLoader begins in each of its workers, at any time and perhaps never, and not in the process
    that made the data set. So both are in shared memory, where forked and spawned workers find them. The first worker
    of an iteration decides its epoch; the others see by the iterator that theirs has begun, whatever was set since
    then. There is no lock: each word is written as a whole, and workers that come at the same time write the same.

    Each worker also has a slot with the last iteration that it began. If that is the last one of all, another one
    begins, even if its iterator has the same number: somebody seeded torch's random numbers anew.
    """

    def __init__(self, epoch: int = 0) -> None:
        self._owner = os.getpid()
        self._process, self._iterations = 0, 0  # how many iterations began in that process
        self._words: Any = torch.zeros(_SLOTS + _NUM_SLOTS, dtype=torch.int64).share_memory_()
        self._told = _Word()
        self.set(epoch)

    def set(self, epoch: int) -> None:
        """Sets the epoch of the next iteration that begins, in whichever process."""
        self._keep_own()
        self._told = _Word(self._told.call % _MAX_CALL + 1, epoch)
        self._words[_TOLD] = self._told.packed()

    def begin(self) -> int:
        """Begins an iteration in this process, or joins that of the loader's other workers. Returns its epoch."""
        self._keep_own()
        if self._process != os.getpid():
            self._process, self._iterations = os.getpid(), 0
        info, now, last = get_worker_info(), self._read(_TOLD), self._read(_LAST)
        # A worker's first iteration began when the worker was made, before whatever was set since then.
        told = now if info is None or self._iterations > 0 else self._told
        iterator, slot = 0, _SLOTS
        if info is not None:  # all workers of one loader have this seed in common
            iterator, slot = hash((info.seed - info.id, self._iterations)) % _MAX_ITERATOR + 1, _SLOTS + info.id
        self._iterations += 1
        if info is not None and last.iterator == iterator and self._read(slot) != last:
            begun = last
        elif last.call == told.call:
            begun = _Word(told.call, min(last.epoch + 1, MAX_EPOCH), iterator)
        else:
            begun = _Word(told.call, told.epoch, iterator)
        if told == now or last.call != now.call:  # else the learner has gone on, and nobody waits for this iteration
            self._write(_LAST, begun)
        self._write(slot, begun)
        return begun.epoch

    def _read(self, place: int) -> _Word:
        return _Word.unpacked(int(self._words[place])) if place < len(self._words) else _Word()

    def _write(self, place: int, word: _Word) -> None:
        if place < len(self._words):
            self._words[place] = word.packed()

    def _keep_own(self) -> None:
        """In a process that is no worker of the owner's loaders, such as a forked learner: goes on by itself."""
        if self._owner != os.getpid() and get_worker_info() is None:
            self._owner, self._words = os.getpid(), self._words.clone().share_memory_()

    def __reduce__(self) -> Any:
        if multiprocessing.context.get_spawning_popen() is not None:
            return _sharing, (vars(self),)  # for a process that is being spawned
        last = self._read(_LAST)
        return Epochs, (last.epoch + 1 if last.call == self._told.call else self._told.epoch,)


def _sharing(state: dict[str, Any]) -> Epochs:
    """The same epochs in a process that was spawned: torch passes on its shared memory."""
    epochs = object.__new__(Epochs)
    vars(epochs).update(state)
    return epochs
