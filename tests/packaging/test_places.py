"""The test of a thing is where one looks: tests/ has the folders of the sources, and each module has a test there.

A module is tested by the file of its name in the mirrored folder: `clients/shards/shard_choice.py` by
`tests/clients/shards/test_shard_choice.py`, `shmreplay/core/arena/hold.h` by `tests/native/arena/hold_test.cc`. A test
of another name in that folder will do if it imports or includes the module. What remains stands in COVERED.

This goes by names alone: whether a test is a good one, no check can say.
"""

import ast
import functools
import pathlib
import re
from collections.abc import Iterable, Iterator

import pytest

from tests.support.repository import ROOT

TESTS = ROOT / "tests"
PACKAGES = {"shmreplay": "shmreplay", "clients": "shmreplay.clients", "daemon": "shmreplay.daemon"}
CORE = ROOT / "shmreplay" / "core"

# A test -> the modules that it covers and that have no test in the mirrored folder. A module that gets one leaves.
COVERED = {
    "tests/clients/batches/test_sample_options.py": ["clients/samplers/sampled.py"],
    "tests/clients/batches/test_large_rows.py": ["clients/handles/gather_threads.py"],
    "tests/clients/cli/commands/test_control.py": [
        "clients/cli/commands/clients.py",
        "clients/cli/commands/drain.py",
        "clients/cli/commands/drop.py",
        "clients/cli/commands/import_items.py",
        "clients/cli/commands/pause.py",
        "clients/cli/commands/reset.py",
        "clients/cli/commands/resume.py",
        "clients/cli/commands/set_ratio.py",
    ],
    "tests/clients/cli/commands/test_demo.py": ["clients/demo/crew.py", "clients/demo/training.py"],
    "tests/clients/cli/commands/test_purge.py": ["shmreplay/segments/dead_instances.py"],
    "tests/clients/cli/commands/test_items_shown.py": [
        "clients/cli/commands/inspect.py",
        "clients/cli/commands/peek.py",
        "clients/cli/items/shown_items.py",
    ],
    "tests/clients/cli/figures/test_offline_figures.py": ["shmreplay/figures/arena_figures.py"],
    "tests/clients/cli/items/test_items_moved.py": [
        "clients/cli/commands/export.py",
        "clients/cli/items/item_rows.py",
        "clients/cli/items/item_stream.py",
    ],
    "tests/clients/cli/test_main.py": [
        "clients/cli/commands/plan.py",
        "clients/cli/commands/stats.py",
        "clients/cli/commands/tables.py",
    ],
    "tests/clients/cli/top/test_top.py": [
        "clients/cli/top/command.py",
        "clients/cli/top/details.py",
        "clients/cli/top/feed.py",
        "clients/cli/top/screen.py",
    ],
    "tests/clients/gymnasium/test_recorder.py": ["clients/gymnasium/rows.py"],
    "tests/clients/handles/test_forks.py": ["clients/handles/handle.py"],
    "tests/clients/jax/test_batch.py": ["clients/jax/placement.py", "clients/jax/sampler.py"],
    "tests/clients/minari/test_saver.py": ["clients/minari/trees.py"],
    "tests/clients/mixes/test_mix.py": ["clients/mixes/parts.py"],
    "tests/clients/params/test_params.py": ["clients/params/leaves.py", "clients/params/snapshot.py"],
    "tests/clients/shards/test_writes.py": ["clients/shards/shard_calls.py", "clients/shards/shard_changes.py"],
    "tests/clients/tables/test_exponent.py": ["clients/tables/table_control.py"],
    "tests/clients/tables/test_table_inserts.py": ["clients/handles/step_conversion.py"],
    "tests/clients/tables/test_table_reads.py": ["clients/tables/table_changes.py"],
    "tests/clients/test_client.py": ["clients/handles/attached_client.py"],
    "tests/clients/test_server.py": ["clients/link/embedded_daemon.py"],
    "tests/clients/torch/test_batch.py": [
        "clients/torch/columns.py",
        "clients/torch/info.py",
        "clients/torch/room.py",
        "clients/torch/transport.py",
        "clients/torch/tensors.py",
    ],
    "tests/clients/torch/test_gather.py": ["clients/torch/choice.py", "clients/torch/parts.py"],
    "tests/clients/torch/test_staging.py": [
        "clients/torch/copies.py",
        "clients/torch/device_tensors.py",
        "clients/torch/host.py",
    ],
    "tests/clients/writers/test_trajectories.py": ["clients/writers/selection_rule.py"],
    "tests/clients/writers/test_vector_rows.py": ["clients/writers/vector_history.py"],
    "tests/daemon/checkpoints/test_kills.py": ["daemon/arenas/restoration.py"],
    "tests/daemon/checkpoints/test_round_trip.py": [
        "daemon/arenas/restored_arena.py",
        "daemon/checkpoints/arena_save.py",
        "daemon/checkpoints/checkpoints.py",
        "daemon/checkpoints/manifest.py",
    ],
    "tests/daemon/checkpoints/test_server.py": [
        "clients/cli/commands/checkpoint.py",
        "clients/cli/commands/inspect_checkpoint.py",
        "clients/cli/commands/restore.py",
        "clients/cli/commands/verify.py",
        "daemon/checkpoints/last_outcome.py",
    ],
    "tests/daemon/checkpoints/test_start.py": ["daemon/checkpoints/directory_lock.py"],
    "tests/daemon/config/test_configuration.py": [
        "daemon/config/checkpoint_options.py",
        "daemon/config/setting_kinds.py",
        "daemon/config/sources.py",
        "daemon/loop/endpoint.py",
        "daemon/process/declared_tables.py",
        "daemon/process/preflight.py",
        "daemon/process/summary.py",
    ],
    "tests/daemon/control/test_connection.py": ["daemon/control/control_server.py", "daemon/loop/unix_listener.py"],
    "tests/daemon/figures/test_long_waits.py": ["daemon/arenas/session_ends.py"],
    "tests/daemon/figures/test_metrics.py": ["daemon/figures/exposition.py", "daemon/loop/http_server.py"],
    "tests/native/arena/hold_test.cc": [
        "shmreplay/core/arena/upcalls",
        "shmreplay/core/base/status",
        "shmreplay/core/base/wait",
        "shmreplay/core/base/word",
    ],
    "tests/native/base/mutable_cell_test.cc": ["shmreplay/core/items/data_update"],
    "tests/native/base/row_codec_test.cc": ["shmreplay/core/base/lz4_block"],
    "tests/native/checkpoint/checkpoint_test.cc": [
        "shmreplay/core/base/long_work",
        "shmreplay/core/checkpoint/checkpoint_records",
        "shmreplay/core/checkpoint/checkpoint_restore",
        "shmreplay/core/checkpoint/checkpoint_save",
        "shmreplay/core/checkpoint/chunk_bytes",
        "shmreplay/core/checkpoint/touched_data",
        "shmreplay/core/chunks/save_lease",
    ],
    "tests/native/items/insert_test.cc": ["shmreplay/core/items/item_chunks", "shmreplay/core/items/new_item"],
    "tests/native/sessions/session_reports_test.cc": [
        "shmreplay/core/arena/session_counts",
        "shmreplay/core/base/report_word",
    ],
    "tests/native/trees/sum_tree_test.cc": ["shmreplay/core/trees/settle_trees"],
    "tests/native/write/due_insert_test.cc": ["shmreplay/core/write/due_item", "shmreplay/core/write/stream_group"],
    "tests/native/write/stream_history_test.cc": ["shmreplay/core/write/stream_view"],
    "tests/native/write/stream_writer_test.cc": [
        "shmreplay/core/write/held_back",
        "shmreplay/core/write/row_packer",
        "shmreplay/core/write/stream_steps",
    ],
    "tests/native/write/values_test.cc": [
        "shmreplay/core/read/value_gather",
        "shmreplay/core/write/value_writer",
    ],
    "tests/packaging/test_wheel.py": ["shmreplay/version.py"],
    "tests/scripts/test_cli_page.py": ["clients/cli/terminal/grammar.py"],
}


def python_modules() -> Iterator[str]:
    """The modules of the package, as paths in the repository."""
    for folder in PACKAGES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not path.name.startswith("__"):  # __init__ hands names on, __main__ starts main
                yield path.relative_to(ROOT).as_posix()


def core_modules() -> Iterator[str]:
    """The modules of the core: a header, its source, or both; without an ending."""
    stems = {path.with_suffix("") for ending in ("h", "cc") for path in CORE.rglob(f"*.{ending}")}
    return (stem.relative_to(ROOT).as_posix() for stem in sorted(stems))


@functools.cache
def imported_by(test: pathlib.Path) -> set[str]:
    """What a test imports, by dotted name; `from a import b` gives a and a.b."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(test.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@functools.cache
def included_by(test: pathlib.Path) -> set[str]:
    """The headers that a native test includes, without their ending."""
    return set(re.findall(r'^#include "([\w/]+)\.h"', test.read_text(encoding="utf-8"), re.MULTILINE))


def without_a_test_of_their_own() -> Iterator[str]:
    """Modules that no test in the mirrored folder has the name of, imports or includes."""
    for module in python_modules():
        path = pathlib.PurePath(module)
        package, *parts = path.with_suffix("").parts
        name = ".".join([PACKAGES[package], *parts])
        folder = TESTS / path.parent
        own = folder / f"test_{path.stem}.py"
        if not own.exists() and not any(name in imported_by(test) for test in folder.glob("test_*.py")):
            yield module
    for module in core_modules():
        header = pathlib.PurePath(module).relative_to("shmreplay/core")
        folder = TESTS / "native" / header.parent
        own = folder / f"{header.name}_test.cc"
        if not own.exists() and not any(header.as_posix() in included_by(test) for test in folder.glob("*_test.cc")):
            yield module


def listed() -> list[str]:
    return [module for modules in COVERED.values() for module in modules]


def lines(modules: Iterable[str]) -> str:
    return "".join(f"\n  {module}" for module in sorted(modules))


def test_every_module_has_a_test_where_one_looks_or_is_listed() -> None:
    lacking = set(without_a_test_of_their_own()) - set(listed())
    assert not lacking, f"write a test of its name, or name the test that covers it in COVERED:{lines(lacking)}"


def test_the_list_has_only_modules_that_need_it() -> None:
    assert len(listed()) == len(set(listed()))
    needless = set(listed()) - set(without_a_test_of_their_own())
    assert not needless, f"these have a test of their own, or are gone: take them out of COVERED:{lines(needless)}"


@pytest.mark.parametrize("test", COVERED)
def test_the_tests_that_cover_them_exist(test: str) -> None:
    assert (ROOT / test).is_file()


def test_no_test_is_in_a_folder_without_sources() -> None:
    """If a folder of the sources is moved, its tests must be moved, too."""
    strays = [
        folder
        for package in PACKAGES
        for folder in {test.parent.relative_to(TESTS) for test in (TESTS / package).rglob("test_*.py")}
        if not (ROOT / folder).is_dir()
    ]
    assert not strays, lines(map(str, strays))
