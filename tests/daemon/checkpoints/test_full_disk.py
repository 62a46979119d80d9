"""Field case P9: checkpoints onto a file system that is full, or becomes so while they are saved."""

import pathlib
from collections.abc import Callable

from tests.support.daemons import Script
from tests.support.namespaces import in_own_mounts, needs_mount

FULL = """
import os, sys
import numpy as np
import shmreplay as sr
folder = sys.argv[1]
checkpoints, ballast = os.path.join(folder, "checkpoints"), os.path.join(folder, "ballast")

def fill(left):
    # All but so many bytes, in pieces that shrink, until not one more goes in.
    with open(ballast, "wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                pass
        file.truncate(max(0, file.tell() - left))

tables = [sr.Table("replay", {"x": sr.ArraySpec((1024,), "uint8")}, 1000, max_streams=4)]
with sr.Server(tables, checkpoint_dir=checkpoints) as server, server.client() as client:
    table = client.table("replay")
    rows = np.arange(1000)[:, None].repeat(1024, 1).astype(np.uint8)
    table.insert_batch({"x": rows})
    path = client.checkpoint()
    size = os.path.getsize(path)
    for left in (0, 4096, size // 2, size - 4096):
        fill(left)
        assert os.statvfs(folder).f_bavail * 4096 < size
        try:
            client.checkpoint()
        except OSError as error:
            print(error, flush=True)
        there = [name for name in os.listdir(checkpoints) if not name.endswith(".lock")]
        assert there == [os.path.basename(path)]
        table.insert_batch({"x": rows[:10]})
        assert len(table.sample(10)) == 10
        assert table._arena.check() == []
    os.unlink(ballast)
    assert client.checkpoint() > path
    expected = table.get(table.keys()).data["x"]
    fill(0)  # who restores writes nothing there
with sr.Server(tables, restore=checkpoints) as server, server.client() as client:
    table = client.table("replay")
    np.testing.assert_array_equal(table.get(table.keys()).data["x"], expected)
print("restored", flush=True)
"""


@needs_mount
def test_on_a_full_file_system_the_error_is_told_and_all_else_goes_on(
    run_script: Callable[..., Script], tmp_path: pathlib.Path
) -> None:
    mounted = in_own_mounts(f"mount -t tmpfs -o size=4m tmpfs {tmp_path}")
    code, out, err = run_script(FULL, str(tmp_path), wrapper=mounted).finish()
    assert (code, err) == (0, "")
    *errors, end = out.splitlines()
    assert end == "restored"
    assert len(errors) == 4
    for error in errors:
        assert "No space left on device" in error
