"""`shmreplay top`: a daemon's tables and clients, live, and what can be done to a table."""

from __future__ import annotations

from shmreplay.clients.cli.top.command import add_parser, run

__all__ = ["add_parser", "run"]
