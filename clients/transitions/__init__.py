"""Rows of transitions: what replay buffers of other libraries are told, as a table stores it. Needs no library.

Those libraries hand over (observation, action, reward, next observation, done), and want the same back. A table stores
row t once and shows the next observation from row t + 1. Reading order: `last_seen`, `stream_rows` (writes rows);
`layout` and `transitions_spec` (the table of two spaces), `transition_table` (makes it and draws), `saved_rows`.
"""

from shmreplay.clients.transitions.stream_rows import StreamRows

__all__ = ["StreamRows"]
