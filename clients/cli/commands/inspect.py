"""`shmreplay inspect`: shows an item of a table, or what a checkpoint contains."""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np

from shmreplay.base.json_values import to_json
from shmreplay.base.process_names import describe_process, process_name
from shmreplay.clients.cli.commands.inspect_checkpoint import inspect_checkpoint
from shmreplay.clients.cli.items.item_images import is_image, picture, write_png
from shmreplay.clients.cli.items.shown_items import (
    JSON_VALUES,
    Output,
    describe_values,
    figures,
    native_of,
    numbers_of,
    outputs_of,
    short,
)
from shmreplay.clients.cli.items.whole_file import whole_file
from shmreplay.clients.cli.terminal.options import add_daemon_options, connected, key
from shmreplay.clients.cli.terminal.printing import counted
from shmreplay.errors import ShmReplayError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "inspect",
        help="show an item of a table, or what a checkpoint contains",
        usage="shmreplay inspect [options] TABLE KEY\n       shmreplay inspect [--json] PATH",
        description="With a table and a key, as `shmreplay peek` lists them: shows the item's numbers, the process "
        "that wrote it, and its arrays. It does not count as a sample. With only a path: lists the tables of a "
        "checkpoint.",
    )
    parser.add_argument(
        "table", metavar="TABLE", help="a table; or the path of a checkpoint, or of a directory of them"
    )
    parser.add_argument("key", nargs="?", type=key, metavar="KEY", help="the key of the item")
    parser.add_argument("--save", metavar="FILE.png", help="write its images to this file, side by side")
    parser.add_argument(
        "--column", metavar="NAME", help="the output whose images to save (default: the first with images)"
    )
    add_daemon_options(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the item's numbers, then one line for each output."""
    if args.key is None:
        return _run_checkpoint(args)
    with connected(args) as client:
        table = client.table(args.table)
        native = native_of(table, args.key)
        batch = table.get(np.array([args.key], np.int64), args.timeout)
        if native is None or len(batch) == 0:
            raise ShmReplayError(
                f"table {args.table!r} has no item {args.key}, or not any more; `shmreplay peek {args.table}` "
                "lists some"
            )
        origin = native.origin(args.key, args.timeout) or {}
        item = {**numbers_of(batch)[0], **{name: origin.get(name) for name in ("num_steps", "stream", "writer_pid")}}
        item["writer_name"] = "" if item["writer_pid"] is None else process_name(item["writer_pid"])
        outputs = outputs_of(batch)
    if args.save is not None:
        _save(args, outputs)
    if args.json:
        print(to_json({"table": args.table, **item, "outputs": {output.path: _full(output) for output in outputs}}))
    else:
        _print(args.table, item, outputs)
    return 0


def _run_checkpoint(args: argparse.Namespace) -> int:
    """Raises ShmReplayError if the argument seems to be a table's name instead of a path."""
    if args.save is not None or args.column is not None:
        raise ShmReplayError(f"--save and --column are for an item; expected its key after {args.table!r}")
    if not os.path.exists(args.table) and os.sep not in args.table:
        raise ShmReplayError(
            f"there is no checkpoint {args.table!r}; to see an item of a table, give its key, too: `shmreplay peek "
            f"{args.table}` lists some"
        )
    return inspect_checkpoint(args.table, args.json)


def _print(table: str, item: dict[str, Any], outputs: list[Output]) -> None:
    print(
        f"item {item['key']} of table {table!r}: inserted {counted(item['age'], 'insert')} ago, priority "
        f"{short(item['priority'])}, sampled {_times(item['times_sampled'])}"
    )
    print(f"episode {item['episode']}, {_describe_steps(item)}{_describe_writer(item)}")
    rows = [(output.path or output.leaf.path, _kind(output), describe_values(output.data)) for output in outputs]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, kind, values in rows:
        print(f"  {name:<{widths[0]}}  {kind:<{widths[1]}}  {values}")


def _describe_steps(item: dict[str, Any]) -> str:
    first, number = item["step"], item["num_steps"]
    if number is None or number == 1:
        return f"step {first}"
    return f"steps {first} to {first + number - 1}"


def _describe_writer(item: dict[str, Any]) -> str:
    """The process that wrote the item, if it still exists, and its stream."""
    if item["stream"] is None:
        return ""
    pid = item["writer_pid"]
    gone = "a process that is not attached any more"
    who = describe_process(pid, item["writer_name"]) if pid is not None else gone
    return f", written by {who} in stream {item['stream']}"


def _kind(output: Output) -> str:
    if not output.is_array:
        return counted(len(output.data), "step") if output.has_steps else "a step"
    missing = int(output.mask.size - np.count_nonzero(output.mask))
    without = f", {missing} missing" if output.has_steps and missing else ", missing" if missing else ""
    return f"{output.data.dtype.name} {output.data.shape}{without}"


def _full(output: Output) -> dict[str, Any]:
    """An output in JSON."""
    if not output.is_array:
        return {"values": output.data, "mask": output.mask}
    data = output.data
    found: dict[str, Any] = {"dtype": data.dtype.name, "shape": list(data.shape), "mask": output.mask}
    if data.size > 0 and data.dtype.kind in "iufb":
        found.update(zip(("min", "max", "mean"), figures(data), strict=True))
    if data.size <= JSON_VALUES:
        found["values"] = data
    else:
        flat = data.reshape(-1)
        found["first_values"], found["last_values"] = flat[: JSON_VALUES // 2], flat[-(JSON_VALUES // 2) :]
    return found


def _save(args: argparse.Namespace, outputs: list[Output]) -> None:
    """Writes the images of an output. Raises ShmReplayError if there is no such output, or it has no images."""
    images = [output for output in outputs if output.is_array and is_image(output.leaf) and output.data.size > 0]
    if args.column is not None:
        if args.column not in [output.path for output in outputs]:
            names = ", ".join(repr(output.path) for output in outputs)
            raise ShmReplayError(f"--column is {args.column!r}; the items of table {args.table!r} have {names}")
        images = [output for output in images if output.path == args.column]
    if not images:
        what = "its items" if args.column is None else f"column {args.column!r}"
        raise ShmReplayError(
            f"table {args.table!r}: {what} have no image: no real numbers of the shape (height, width), with or "
            "without channels"
        )
    output = images[0]
    with whole_file(args.save) as file:
        file.write(write_png(picture(output.data, len(output.leaf.spec.shape))))


def _times(number: int) -> str:
    return {0: "never", 1: "once"}.get(number, f"{number} times")
