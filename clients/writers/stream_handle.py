"""StreamHandle: what a writer of one stream and a writer of many streams have in common."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import msgpack
import numpy as np

from shmreplay import _core
from shmreplay.clients.handles.blocking import explain_items
from shmreplay.clients.handles.handle import Handle
from shmreplay.clients.handles.structure_error import raise_other_structure
from shmreplay.clients.link.attachments import specs_of
from shmreplay.clients.writers.history import Form, Output, SelectsSteps, form_of, read_trajectory
from shmreplay.clients.writers.selection_rule import selection_rule, with_item_values
from shmreplay.clients.writers.writer_rules import check_structure
from shmreplay.columns import structure
from shmreplay.columns.conversion import value_text
from shmreplay.columns.structure import DictNode, kind_text
from shmreplay.errors import RateLimitTimeout, ShmReplayError, SignatureMismatch, TableNotFound
from shmreplay.rules.end_columns import end_leaves
from shmreplay.rules.item_rules import Rule
from shmreplay.tables.table import Table, check_brings_no_values

if TYPE_CHECKING:
    from typing_extensions import Self


logger = logging.getLogger("shmreplay")

CLOSE_TIMEOUT_S = 10.0
MAX_SELECTIONS = 256  # that a writer keeps; a dropped one is made again when it is used again


class StreamHandle:
    """Rules, selections, errors and the end of a writer. The class of the writer makes `_native`."""

    _native: _core.Writer | _core.VectorWriter
    _made_by: ClassVar[str]
    _item_call: ClassVar[str]
    _end_call: ClassVar[str]
    _end_call_with_final: ClassVar[str]
    _final_row_first: ClassVar[str] = ""  # how items made by hand can contain a final step, if they can

    def __init__(self, table: Handle, history: int, rules: Sequence[Rule]) -> None:
        self._table = table
        self._sig = table._sig
        self._history = history
        self._rules = rules
        self._specs = specs_of(table._arena)
        self._selections: dict[tuple[bytes, tuple[Output, ...], str | None], int] = {}
        self._forms: dict[tuple[Form, str | None], int] = {}  # numbers of selections by what trajectories come to
        self._makes_items = False  # by hand
        self._is_closed = False

    def _native_rules(self) -> list[dict[str, Any]]:
        return [self._native_rule(rule) for rule in self._rules]

    def _native_rule(self, rule: Rule) -> dict[str, Any]:
        index = self._table_index(rule.table)
        native = rule.native(self._sig, index, self._where)
        check_structure(native, self._specs[index], self._sig, f"{self._where}: pattern")
        check_brings_no_values(self._sig, f"{self._where}: it has a pattern")
        return native

    def _table_index(self, name: str | None) -> int:
        """The index in the arena of the table of that name; None is the writer's own table."""
        if name in (None, self._table.name, self._table.spec.owner.name):  # the owner of a shard
            return self._table._index
        for index, table in enumerate(self._specs):
            if table.name == name:
                return index
        raise TableNotFound(
            f"{self._where}: no table {name!r} over the same steps; create both with the same arena= to feed both"
        )

    def _selected(self, trajectory: Any, table: str | None, kind: type[SelectsSteps]) -> int:
        """The number under which the core knows what a trajectory selects.

        Raises what `read_trajectory` and `with_item_values` raise.
        """
        form: Form | None
        try:
            form = form_of(trajectory, self, kind, self._held())
            if (number := self._forms.get((form, table))) is not None:
                return number
        except (LookupError, TypeError):  # TypeError: it has a key that cannot be hashed
            form = None
        number = self._selection(*self._read_selection(trajectory, kind), table)
        if form is not None:
            if len(self._forms) >= MAX_SELECTIONS:
                self._forms.clear()
            self._forms[form, table] = number
        return number

    def _held(self) -> tuple[int, int]:
        """The oldest and the newest step that is held, if selections name steps by number."""
        return 0, 0

    def _read_selection(self, trajectory: Any, kind: type[SelectsSteps]) -> tuple[bytes, tuple[Output, ...]]:
        """The structure and the outputs of the items that a trajectory makes, as the core reads them."""
        node, outputs = with_item_values(
            *read_trajectory(trajectory, self, self._where, kind), self._sig, f"{self._where}, trajectory"
        )
        return msgpack.packb(structure.to_wire(node)), tuple(outputs)

    def _selection(self, names: bytes, outputs: tuple[Output, ...], table: str | None) -> int:
        """The number under which the core knows a selection. Makes the selection there if it is new."""
        identity = (names, outputs, table)
        if (number := self._selections.get(identity)) is not None:
            return number
        index = self._table_index(table)
        rule = selection_rule(names, outputs, index)
        check_structure(rule, self._specs[index], self._sig, f"{self._where}: trajectory")
        is_full = len(self._selections) == MAX_SELECTIONS
        oldest = next(iter(self._selections), identity)
        number = self._selections[oldest] if is_full else len(self._selections)
        self._native.set_selection(number, rule)
        if is_full:
            del self._selections[oldest]
            self._forms.clear()  # that number means another selection now
        self._selections[identity] = number
        return number

    def _check_length(self, length: object, table: Table) -> int:
        """Returns the length of an item of that table."""
        if isinstance(length, bool) or not isinstance(length, (int, np.integer)):
            raise TypeError(f"{self._where}: length is {length!r}; expected a number of steps")
        declared = table.item_steps
        if length > declared > 1:
            raise ValueError(f"length is {length}; table {table.name!r} was declared with item_steps={declared}")
        if length < 1:
            raise ValueError(f"{self._where}: length is {length}; expected 1 to {self._history}")
        return int(length)

    def _check_no_item_declared(self, table: Table) -> None:
        if table.item is not None:
            raise SignatureMismatch(
                f"table {table.name!r}: its items are {table.item!r}, as it declares; length= makes others"
            )

    def _check_final(self, steps: object, name: str) -> None:
        """Refuses a bare observation as the final step: it must be given under its column's name."""
        root = self._sig.root
        if isinstance(root, DictNode) and hasattr(steps, "dtype"):
            raise SignatureMismatch(
                f"{self._where}: {name} is {value_text(steps)}; expected {kind_text(root)}, some of which may be left "
                f"out: {name}={{{root.keys[0]!r}: ...}}"
            )

    def close(self) -> None:
        """Ends the stream. Items stay, steps that are in no item are freed. Later calls raise ShmReplayError.

        Raises:
            RateLimitTimeout: items that were held back were not admitted within ten seconds; the writer stays open.
        """
        self._close(failed=False)

    def _flush_before_close(self, failed: bool) -> None:
        """Puts in the items that are held back, if any. `failed`: the caller already has an error to see."""

    def _warn_of_lost(self, why: object) -> None:
        """Logs how many items that were held back are lost, if any."""

    def _close(self, failed: bool) -> None:
        if self._is_closed:
            return
        if self._native.forked or self._table._client.is_closed:
            self._is_closed = True  # the stream is the parent's, or ended with the client's session
            if not self._native.forked:
                self._warn_of_lost("the client was closed before it")
            return
        self._flush_before_close(failed)
        if not failed and not self._makes_items and not self._rules and self._table.spec.item is None:
            self._warn_if_in_vain()
        status = self._native.close(CLOSE_TIMEOUT_S)  # raises if another thread uses the writer; then it stays open
        self._is_closed = True
        if status not in (0, _core.STATUS_SESSION_LOST):
            self._table._raise_status(status, "close", CLOSE_TIMEOUT_S)

    def _warn_if_in_vain(self) -> None:
        """Warns if no item was made of the steps that were appended: they were in vain."""
        if self._has_appended():
            logger.warning(
                "%s: the writer ends, has appended steps, and made no item of them: the table has no item=, and the "
                "writer no patterns=. Create the table with item=sr.NStep(3) or another window, give the writer "
                "patterns=[...], or make items by hand, %s(length=...)",
                self._where,
                self._item_call,
            )

    @abstractmethod
    def _has_appended(self) -> bool:
        """Whether any step was appended, in this episode or an earlier one."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self._where}: a writer cannot be pickled, it is a stream of one process; pass the table, and call "
            f"{self._made_by}() there"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(failed=kind is not None)  # after an error it is no surprise that no item was made

    def __repr__(self) -> str:
        return f"<shmreplay {type(self).__name__} of {self._where}{' closed' if self._is_closed else ''}>"

    @property
    def _where(self) -> str:
        return self._table._where

    def _check_open(self) -> None:
        if self._is_closed:
            raise ShmReplayError(f"{self._where}: the writer is closed; make a new one with {self._made_by}()")
        self._table._check_open()

    def _raise_status(
        self, status: int, call: str, timeout_s: float | None, blocking: int = -1, at: str = ""
    ) -> NoReturn:
        """Raises the error that a native answer stands for.

        Args:
            blocking: index of the table whose rate limiter did not admit an item, or -1.
            at: for the text, the stream that it is about.
        """
        where = f"{self._where}{at}"
        if status == _core.NEEDS_END_EPISODE:
            spec = self._table.spec
            columns = " or ".join(repr(leaf.path) for leaf in end_leaves(spec.sig, spec.ends))
            raise ShmReplayError(
                f"{where}: the last step was terminated or truncated; call {self._end_call}(), with the final "
                f"observation if there is one, before the next append{self._final_row_first}. Column {columns} says so"
            )
        if status == _core.UNFINISHED:
            raise ShmReplayError(
                f"{where}: {call}: an append or {self._end_call} failed after some of its items went in; repeat that "
                "call first"
            )
        if status == _core.STATUS_HISTORY and self._rules:
            raise ValueError(
                f"{where}: {call}: the episode is longer than the writer's history of {self._history} steps, and "
                "an item of a whole episode needs all of it; end the episode, or make the writer with a longer history"
            )
        if status == _core.STATUS_TIMEOUT and blocking >= 0:
            self._raise_blocked(blocking, call, timeout_s)
        if status == _core.STATUS_STRUCTURE:
            made = [(f"patterns[{number}]", self._native_rule(rule)) for number, rule in enumerate(self._rules)]
            self._raise_structure(f"{where}: {call}", made)
        if status == _core.STATUS_FORKED:
            raise ShmReplayError(
                f"{where}: this writer belongs to the parent process; make one in the child with {self._made_by}()"
            )
        self._table._raise_status(status, call if status == _core.STATUS_TIMEOUT else f"{call}{at}", timeout_s)

    def _raise_structure(self, where: str, made: list[tuple[str, dict[str, Any]]]) -> NoReturn:
        raise_other_structure(where, self._table._arena, self._specs, made)

    def _raise_blocked(self, index: int, call: str, timeout_s: float | None) -> NoReturn:
        """Raises RateLimitTimeout for an item that a rate limiter did not admit, perhaps that of another table."""
        arena = self._table._arena
        reason = explain_items(arena, arena.table(index).info())
        raise RateLimitTimeout(f"table {self._specs[index].name!r}: {call} not admitted within {timeout_s} s: {reason}")

    def _raise_needs_final(self, column: int, at: str = "") -> NoReturn:
        raise ShmReplayError(
            f"{self._where}{at}: the episode ends, but its last step was not terminated, so its items need what "
            f"follows: its next {self._sig.leaves[column].path!r} is missing; give it, {self._end_call_with_final}"
        )

    def _raise_missing(self, call: str, step: int, column: int, at: str = "") -> NoReturn:
        raise SignatureMismatch(
            f"{self._where}{at}: {call}: an item selects column {self._sig.leaves[column].path!r} of step {step} of "
            "the stream, which was appended without it; append whole steps, or select other ones"
        )


def native_ends(table: Table, rules: Sequence[Rule]) -> tuple[list[int], int, bool]:
    """The columns that end an episode, the one of them that truncates it (or -1), and whether rules cross episodes."""
    leaves = end_leaves(table.sig, table.ends)
    truncated = next((leaf.index for leaf in leaves if leaf.path.rpartition("/")[2] == "truncated"), -1)
    return [leaf.index for leaf in leaves], truncated, any(getattr(r, "across_episodes", False) for r in rules)
