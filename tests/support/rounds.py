"""How many rounds to run of tests that find more the longer they run."""

import os


def rounds(few: int, many: int) -> int:
    """Returns `many` if SHMREPLAY_LONG is set, as by `make test-long`, otherwise `few`."""
    return many if os.environ.get("SHMREPLAY_LONG") else few
