"""Data sets of Minari at the terminal: what `shmreplay import` and `export` do with `--minari`."""

from __future__ import annotations

import argparse
import warnings

from shmreplay.base.json_values import to_json
from shmreplay.clients.cli.terminal.options import connected
from shmreplay.clients.cli.terminal.printing import counted
from shmreplay.errors import ShmReplayError


def import_dataset(args: argparse.Namespace) -> int:
    """Puts a data set into a table, which is made if it is not there. Prints how many steps went in."""
    _check_installed()
    import minari

    from shmreplay.clients.minari import load, table_spec

    try:
        dataset = minari.load_dataset(args.minari)
    except FileNotFoundError as error:
        raise ShmReplayError(
            f"there is no data set {args.minari!r} in {minari.storage.get_dataset_path()}; `minari list local` says "
            "which there are, `minari download` fetches one"
        ) from error
    with connected(args) as client:
        is_made = args.table not in client.tables()
        if is_made:
            client.create_tables([table_spec(dataset, args.table)])
        table = client.table(args.table)
        before = table.info().evicted_for_room
        num_steps = load(table, dataset, timeout_s=args.wait)
        evicted = table.info().evicted_for_room - before
    found = {"dataset": args.minari, "episodes": len(dataset), "steps": num_steps, "evicted_for_room": evicted}
    if args.json:
        print(to_json(found))
        return 0
    made = ", which was made for it" if is_made else ""
    room = f"; {counted(evicted, 'item')} evicted again for room" if evicted > 0 else ""
    size = f"{counted(len(dataset), 'episode')}, {counted(num_steps, 'step')}"
    print(f"{args.minari}: {size} are in table {args.table!r}{made}{room}")
    return 0


def export_dataset(args: argparse.Namespace) -> int:
    """Writes a table's episodes as a data set. Prints how many there are, and where."""
    _check_installed()
    from shmreplay.clients.minari import save

    with connected(args) as client, warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="minari")  # of metadata that nobody asked for
        dataset = save(client.table(args.table), args.minari, env=args.env)
    found = {
        "dataset": args.minari,
        "path": str(dataset.storage.data_path),
        "episodes": len(dataset),
        "steps": int(dataset.total_steps),
    }
    if args.json:
        print(to_json(found))
        return 0
    size = f"{counted(found['episodes'], 'episode')}, {counted(found['steps'], 'step')}"
    print(f"{args.minari}: {size} of table {args.table!r}, in {found['path']}")
    return 0


def _check_installed() -> None:
    try:
        import shmreplay.clients.minari  # noqa: F401
    except ImportError as error:
        raise ShmReplayError(str(error)) from error
