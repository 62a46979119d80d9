"""Data sets of Minari: into a table, and a table out as one.

Reading order: `table_spec` (the table of a data set), `loader`, `episodes` (what a table holds),
`saver`.
"""

import importlib.util

if importlib.util.find_spec("minari") is None:
    raise ImportError(
        "shmreplay.clients.minari reads and writes data sets of Minari, and minari is not installed; install it: "
        "pip install 'shmreplay[minari]'"
    )

from shmreplay.clients.minari.episodes import Episode, episodes_of
from shmreplay.clients.minari.loader import load
from shmreplay.clients.minari.saver import save
from shmreplay.clients.minari.table_spec import signature_of, table_spec

__all__ = ["Episode", "episodes_of", "load", "save", "signature_of", "table_spec"]
