"""What errors say about the limits of a process."""

import errno
import os

from shmreplay.base.process_limits import reason_with_limit, with_limit
from tests.support.daemons import Run

SMALL_FILES = """
import os, resource, sys
from shmreplay.base.process_limits import reason_with_limit, with_limit
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
try:
    os.posix_fallocate(fd, 0, 4096)
except OSError as error:
    print(os.getpid(), with_limit(error), reason_with_limit(error), sep="|")
"""


def test_the_limit_is_told_with_its_value_and_what_to_do(run_script: Run, tmp_path: os.PathLike[str]) -> None:
    code, out, err = run_script(SMALL_FILES, os.path.join(tmp_path, "file")).finish()
    assert (code, err) == (0, "")
    pid, whole, reason = out.strip().split("|")
    limit = f"(a file of process {pid} may have 1000 bytes: raise ulimit -f, or LimitFSIZE= of its unit)"
    assert whole == f"[Errno 27] File too large {limit}"
    assert reason == f"File too large {limit}"


def test_a_limit_is_told_once_and_only_where_there_is_one() -> None:
    assert with_limit(OSError(errno.ENOENT, "No such file", "/a")) == "[Errno 2] No such file: '/a'"
    assert with_limit(OSError("no number")) == reason_with_limit(OSError("no number")) == "no number"
    once = with_limit(OSError(errno.EMFILE, "Too many open files"))
    assert with_limit(OSError(errno.EMFILE, once)).count("ulimit -n") == once.count("ulimit -n") == 1
