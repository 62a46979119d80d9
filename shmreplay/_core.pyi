"""
Native core of shmreplay. Private: its names and answers change without notice.
"""

from collections.abc import Sequence
from typing import Any

LAYOUT_VERSION: int = 8

EXPECTED_PRIORITY: str

MAX_GATHER_THREADS: int = 64

HUGE_PAGE_BYTES: int = 2097152

VIEW_CHUNKS: int = 832

FIRST_REPORT_S: int = 10

LATER_REPORTS_S: int = 60

BAD_PRIORITY: int = -100

WRONG_ARRAYS: int = -108

NEEDS_END_EPISODE: int = -101

NEEDS_FINAL_STEP: int = -103

UNFINISHED: int = -104

STATUS_MISSING_CELL: int = 16

COLUMN_TWICE: int = -105

COLUMN_MISSING: int = -106

ROW_IS_OPEN: int = -107
NEEDS_PYTHON: int = -108

LACKS_COLUMN: int = -102

NO_VALUE: object = ...

HEAP_COLUMN: int = 1

MUTABLE_COLUMN: int = 2

PER_ITEM_COLUMN: int = 4

STATUS_ERRORS: dict[Any, Any] = ...

STATUS_TIMEOUT: int = 1

STATUS_INTERRUPTED: int = 2

STATUS_SESSION_LOST: int = 4

STATUS_FORKED: int = 5

STATUS_LOCK_TIMEOUT: int = 7

STATUS_ARENA_FULL: int = 8

STATUS_STRUCTURE: int = 12

STATUS_TOO_LONG: int = 18

STATUS_TOO_FEW_ITEMS: int = 19

STATUS_HISTORY: int = 15

def layout_hash() -> int:
    """Hash of the segment's layout, the lock and the C library."""

def plan_arena(native: dict[Any, Any]) -> dict[Any, Any]:
    """Sizes of an arena, in bytes."""

def format_arena(
    index_fd: int, data_fd: int, native: dict[Any, Any], instance: str, name: str, published: bool = True
) -> None:
    """Lays out an empty arena in two segments of the planned sizes."""

def packed_bytes(rows: object) -> int:
    """
    Stored bytes of rows of a packed column, uint8 [n, row_bytes], one after the other.
    """

def inspect_header(index_fd: int) -> dict[Any, Any]:
    """
    What the header of an index segment says; OSError if it cannot be read, none for a damaged one.
    """

def take_huge_pages(fd: int, offset: int, num_bytes: int) -> int:
    """
    Has the empty part of a file allocated as huge pages. 0, or the errno with which the kernel stopped.
    """

def huge_bytes_of(fd: int, num_bytes: int) -> int:
    """How much of a file is in huge pages now."""

def num_memory_nodes() -> int:
    """Those that this process may use; 0 where there are none to choose."""

def interleave(fd: int, num_bytes: int) -> int:
    """
    Spreads the pages that a file is given from now on over the memory nodes. 0, or errno.
    """

def prove_robust_lock() -> None:
    """
    Forks a child that dies inside a lock; RuntimeError where its death is not reported.
    """

def process_is_dead(pid: int, start_time: int) -> bool:
    """Whether the kernel says that this process has ended."""

def boot_id() -> str:
    """
    The kernel's name for the time since the last boot; OSError if it cannot be read.
    """

def namespace_inode(which: str) -> int:
    """
    The inode of this process' namespace, 'pid' or 'time'; 0 if the kernel has none; OSError if it is hidden.
    """

def limit_behind(error: int) -> str:
    """
    Names the limit behind an errno, its value and how to raise it; '' if there is none.
    """

def process_start_time(pid: int) -> int:
    """Clock ticks since boot; 0 if unreadable."""

class Flag:
    """Set once: the calls of all handles that were bound with it end."""

    def __init__(self) -> None: ...
    def set(self) -> None: ...
    @property
    def is_set(self) -> bool: ...

class Arena:
    """A mapped arena. Calls that wait release the GIL and honour signals."""

    def __init__(
        self, index_fd: int, data_fd: int, session: int = -1, generation: int = 0, published: bool = True
    ) -> None: ...
    @property
    def instance(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def specs(self) -> bytes: ...
    @property
    def num_tables(self) -> int: ...
    @property
    def pid_namespace(self) -> int: ...
    @property
    def forked(self) -> bool: ...
    @property
    def session(self) -> int: ...
    @property
    def open_streams(self) -> int: ...
    @property
    def data_address(self) -> int: ...
    @property
    def data_bytes(self) -> int: ...
    @property
    def chunk_bytes(self) -> int: ...
    def open_session(self, pid: int, start_time: int, timeout_s: object | None = None) -> tuple[Any, ...]: ...
    def close_session(self, session: int, generation: int, timeout_s: object | None = None) -> bool: ...
    def sessions(self) -> list[dict[str, Any]]: ...
    def damaged_session(self, timeout_s: object | None = None) -> str:
        """The first session whose record is damaged, and how; empty if there is none."""

    def uses_of(self, session: int, generation: int) -> tuple[list[str], list[str]]: ...
    def uses(self) -> tuple[list[str], list[str]]: ...
    def waits(self) -> list[dict[str, Any]]: ...
    def end_calls(self, timeout_s: float) -> bool: ...
    def drop(self, timeout_s: object | None = None) -> None: ...
    def lock_holder(self) -> dict[str, int] | None: ...
    def names_chunks(self) -> bool: ...
    def check(self, timeout_s: object | None = None) -> list[str]: ...
    def rebuild(self, timeout_s: object | None = None) -> None: ...
    def publish(self) -> None: ...
    def stats(self) -> dict[Any, Any]: ...
    def mlock_index(self) -> bool: ...
    def close(self) -> None: ...
    def table(self, index: int) -> Table: ...

def encode_rows(values: object | None, dtype: object, shape: object) -> list[Any] | None: ...
def make_surely(make: object, made: list[Any]) -> None:
    """
    Calls make() until no signal's handler ends it, appends what it returned unless that is None, and then raises what the handler raised.
    """

class SampleOptions:
    """What a caller asked of a draw, checked by Python. Serves many calls."""

    def __init__(
        self,
        n: int,
        at_least: int,
        count: bool = True,
        distinct: bool = False,
        num_threads: int = 1,
        rank: int = 0,
        world_size: int = 1,
    ) -> None: ...

class BatchLayout:
    """Which outputs a batch shows, and how they lie."""

    def __init__(self, num_outputs: int, outputs: list[Any], names: bytes, time_major: bool) -> None: ...

class CheckpointSave:
    """An arena as it is at one instant, slice by slice."""

    def __init__(self, arena: Arena) -> None: ...
    def take(self, session: int, generation: int, timeout_s: object | None) -> bool: ...
    def state(self) -> dict[Any, Any]: ...
    def fill(self, buffer: object, timeout_s: object | None) -> tuple[Any, ...]: ...
    @property
    def was_given_up(self) -> bool: ...
    @property
    def total_bytes(self) -> int: ...
    @property
    def chunks_taken(self) -> int: ...
    def close(self) -> None: ...

class Restorer:
    """
    Fills a freshly formatted arena, unpublished, with a checkpoint's parts.
    """

    def __init__(self, arena: Arena) -> None: ...
    def set_state(self, state: dict[Any, Any]) -> None: ...
    def put(self, part: int, table: int, buffer: object) -> None: ...
    def finish(self, timeout_s: object | None) -> None: ...

class Table:
    """One table of a mapped arena."""

    def bind(
        self,
        plan: object,
        columns: Sequence[Any],
        canonical: object,
        canonical_batch: object,
        observer: object | None,
        closed: Flag,
    ) -> None: ...
    def insert(
        self, step: object | None, priority: object | None, timeout_s: object | None, values: object | None = None
    ) -> int: ...
    def insert_batch(
        self,
        steps: object | None,
        priorities: object | None,
        timeout_s: object | None,
        values: object | None,
        went_in: list[Any],
    ) -> tuple[Any, ...]: ...
    def extend(
        self,
        arrays: object,
        row_ends: object | None,
        finals: object | None,
        history: int,
        ends: tuple[Any, ...],
        rules: list[Any],
        clear_history: bool,
        counted: bool,
        timeout_s: object | None,
        went_in: list[Any],
    ) -> tuple[Any, ...]: ...
    def structure(self, waits: bool, count: bool, timeout_s: object | None) -> tuple[Any, ...]: ...
    def sample(
        self,
        options: SampleOptions,
        uniforms: object,
        timeout_s: object | None,
        layout: BatchLayout | None,
        out: object | None,
        make: object,
        drawn: list[Any],
    ) -> tuple[Any, ...]: ...
    def end_threads(self) -> None: ...
    def get(self, keys: object, timeout_s: object | None, layout: BatchLayout | None) -> tuple[Any, ...]: ...
    def places(self, keys: object, timeout_s: object | None) -> tuple[Any, ...]: ...
    def keys(self) -> object: ...
    def column(self, index: int, device_type: int = 1, device_id: int = 0) -> Any: ...
    def wait_for_insert(self, seen: int, timeout_s: object | None) -> tuple[Any, ...]: ...
    def insert_number(self, key: int, timeout_s: object | None) -> tuple[Any, ...]: ...
    def update_priorities(self, keys: object, priorities: object, timeout_s: object | None) -> tuple[Any, ...]: ...
    def update_data(
        self, keys: object, updates: Sequence[Any], at: int, timeout_s: object | None
    ) -> tuple[Any, ...]: ...
    def delete(self, keys: object, timeout_s: object | None) -> tuple[Any, ...]: ...
    def reset(self, timeout_s: object | None = None) -> None: ...
    def set_rate_limiter(
        self,
        samples_per_insert: float,
        min_size_to_sample: int,
        min_diff: float,
        max_diff: float,
        count_deletes: bool,
        rebase: bool,
        timeout_s: object | None = None,
    ) -> None: ...
    def first_bad_priority(self, priorities: object) -> int: ...
    def set_priority_exponent(self, exponent: float, timeout_s: object | None = None) -> None: ...
    def pause(self, inserts: bool, samples: bool, timeout_s: object | None = None) -> None: ...
    def resume(self, timeout_s: object | None = None) -> None: ...
    def set_stopping(self, on: bool, timeout_s: object | None = None) -> None: ...
    def end_waits(self) -> None: ...
    def can_insert(self, n: int) -> bool: ...
    def can_sample(self, n: int) -> bool: ...
    def info(self) -> dict[Any, Any]: ...
    def priority_stats(self) -> tuple[Any, ...]: ...
    def survey(self, max_items: int) -> tuple[Any, Any, Any, Any, int]: ...
    def origin(self, key: int, timeout_s: float | None) -> dict[str, Any] | None: ...
    @property
    def dropped(self) -> bool: ...
    @property
    def num_inserts(self) -> int: ...
    @property
    def is_awaited(self) -> bool: ...
    @property
    def size(self) -> int: ...

class ShardBatch:
    """A batch drawn from several tables as from one."""

    def __init__(
        self,
        tables: list[Any],
        options: SampleOptions,
        layout: BatchLayout | None,
        out: object | None,
        timeout_s: object | None,
    ) -> None: ...
    def draw(self, uniforms: object) -> tuple[Any, ...]: ...
    def wait(self) -> tuple[Any, ...]: ...
    def get(self, shard: int, keys: object) -> tuple[Any, ...]: ...
    def release(self, order: object | None, time_major: bool) -> tuple[Any, ...]: ...
    @property
    def arrays_are_right(self) -> bool: ...
    @property
    def open(self) -> int: ...
    @property
    def done(self) -> int: ...
    @property
    def shard(self) -> int: ...

def update_shards(tables: list[Any], keys: object, priorities: object, timeout_s: object | None) -> tuple[Any, ...]:
    """New priorities for items of several tables, by their keys."""

class View:
    """Items where they lie, until they are released."""

    def __init__(self, table: Table) -> None: ...
    def draw(self, options: SampleOptions, uniforms: object, timeout_s: object | None) -> tuple[Any, ...]: ...
    @property
    def num_items(self) -> int: ...
    def numbers(self) -> tuple[Any, ...]: ...
    @property
    def num_copies(self) -> int: ...
    @property
    def smallest_probability(self) -> float: ...
    def structure(self) -> tuple[bytes, list[bool], list[int]] | None: ...
    def rows(self) -> list[int]: ...
    def item(self, index: int) -> tuple[Any, ...]: ...
    def row_numbers(self, output: int) -> tuple[Any, ...]: ...
    @property
    def is_contiguous(self) -> bool: ...
    def strided(self, output: int) -> Any: ...
    def exported(self, output: int, device_type: int = 1, device_id: int = 0) -> Any: ...
    def release(self) -> None: ...

class Writer:
    """One stream."""

    def __init__(
        self, table: Table, history: int, ends: tuple[Any, ...], rules: list[Any], commit_every: int = 1
    ) -> None: ...
    def append(self, step: object | None, priority: object | None, timeout_s: object | None) -> object: ...
    def write_open(self, arrays: object, finish: bool, priority: object | None, timeout_s: object | None) -> object: ...
    def append_part(
        self, step: object | None, finish: bool, priority: object | None, timeout_s: object | None
    ) -> object: ...
    def go_on(self, timeout_s: object | None) -> object: ...
    def present(self) -> list[int]: ...
    def set_selection(self, number: int, rule: dict[Any, Any]) -> None: ...
    def create_selected(
        self, selection: int, priority: object | None, timeout_s: object | None, values: object | None = None
    ) -> object: ...
    def create_item(
        self,
        length: int,
        priority: object | None,
        timeout_s: object | None,
        values: object | None = None,
        table: int = ...,
    ) -> int: ...
    def end_episode(self, clear_history: bool, priority: object | None, timeout_s: object | None) -> object: ...
    def flush(self, timeout_s: object | None) -> object: ...
    def close(self, timeout_s: object | None) -> int: ...
    def read_cell(self, step: int, column: int) -> object: ...
    def restore_row(self, columns: Sequence[int]) -> None: ...
    @property
    def is_ending(self) -> bool: ...
    @property
    def is_unfinished(self) -> bool: ...
    @property
    def blocking_table(self) -> int: ...
    @property
    def oldest_step(self) -> int: ...
    @property
    def row_is_open(self) -> bool: ...
    @property
    def needs_end_episode(self) -> bool: ...
    @property
    def num_steps(self) -> int: ...
    @property
    def num_whole(self) -> int: ...
    @property
    def episode_steps(self) -> int: ...
    @property
    def num_held_back(self) -> int: ...
    @property
    def forked(self) -> bool: ...

class VectorWriter:
    """N streams, written by one call."""

    def __init__(
        self, table: Table, num_streams: int, history: int, ends: tuple[Any, ...], rules: list[Any]
    ) -> None: ...
    def append(
        self,
        steps: object | None,
        num_rows: int,
        numbers: object,
        streams: object,
        priority: object | None,
        timeout_s: object | None,
        answers: list[Any],
    ) -> tuple[Any, ...]: ...
    def write_open(
        self,
        arrays: object,
        finish: bool,
        numbers: object,
        streams: object,
        priority: object | None,
        timeout_s: object | None,
        answers: list[Any],
    ) -> tuple[Any, ...]: ...
    def append_part(
        self,
        steps: object | None,
        num_rows: int,
        finish: bool,
        numbers: object,
        streams: object,
        priority: object | None,
        timeout_s: object | None,
        answers: list[Any],
    ) -> tuple[Any, ...] | None: ...
    def masks_all(self, mask: object | None) -> bool: ...
    def end_episodes(
        self,
        arrays: object | None,
        clear_history: bool,
        numbers: object,
        streams: object,
        priority: object | None,
        timeout_s: object | None,
        answers: list[Any],
    ) -> tuple[Any, ...]: ...
    def create_items(
        self,
        length: int,
        selection: int,
        priorities: object,
        numbers: object,
        streams: object,
        timeout_s: object | None,
        answers: list[Any],
    ) -> tuple[Any, ...]: ...
    def set_selection(self, number: int, rule: dict[Any, Any]) -> None: ...
    def close(self, timeout_s: object | None) -> int: ...
    def read_cell(self, stream: int, step: int, column: int) -> object: ...
    def oldest_step(self, stream: int) -> int: ...
    def num_steps(self, stream: int) -> int: ...
    def episode_steps(self, stream: int) -> int: ...
    def row_is_open(self, stream: int) -> bool: ...
    def blocking_table(self, stream: int) -> int: ...
    @property
    def any_open(self) -> bool: ...
    @property
    def forked(self) -> bool: ...
