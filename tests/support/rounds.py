"""How often to do what finds the more the longer it goes on."""

import os


def rounds(few: int, many: int) -> int:
    """`many` where SHMREPLAY_LONG is set, as by `make test-long`, else `few`."""
    return many if os.environ.get("SHMREPLAY_LONG") else few
