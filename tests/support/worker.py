"""Worker: a process that is attached to the table `replay`, and does what it is told."""

from tests.support.daemons import Script

WORK = """
import os, sys
import numpy as np
import shmreplay as sr
client = sr.connect(sys.argv[1])
table = client.table("replay")
step = {"x": np.ones(3, np.float32), "n": 7}
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Worker:
    """Runs a line of Python after the other; `script` is one of WORK."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.pid = script.pid

    def do(self, line: str) -> None:
        self.begin(line)
        assert self._script.line() == "done"

    def begin(self, line: str) -> None:
        self._script.say(line)

    def end(self) -> None:
        self._script.close()
