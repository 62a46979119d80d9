"""`shmreplay top`: shows a daemon's tables and clients live, and can pause, resume, drain and drop tables."""

from __future__ import annotations

from shmreplay.clients.cli.top.command import add_parser, run

__all__ = ["add_parser", "run"]
