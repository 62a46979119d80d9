"""Access: who is at the other end of a connection, as the kernel says, and whether they may use this daemon."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass

from shmreplay.base.processes import open_process, own_namespace, pid_namespace_of

SO_PEERGROUPS = 59  # <asm-generic/socket.h>; Python has no names for these two
SO_PEERPIDFD = 77
GROUPS_BYTES = 1024  # the largest buffer that Python's getsockopt takes
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class Peer:
    """The process that connected, with its credentials at that moment."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int]

    def __str__(self) -> str:
        return f"pid {self.pid}, uid {self.uid}"


def peer_of(sock: socket.socket) -> Peer:
    """Reads the peer's credentials from the socket. The pid is 0 if the peer is outside this pid namespace."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(credentials)
    return Peer(pid, uid, gid, frozenset({gid, *_peer_groups(sock)}))


def _peer_groups(sock: socket.socket) -> list[int]:
    try:
        packed = sock.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, GROUPS_BYTES)
    except OSError:  # before Linux 4.13, or more than 256 groups: only the primary group counts then
        return []
    return list(struct.unpack(f"{len(packed) // 4}I", packed))


def open_peer_pidfd(sock: socket.socket, peer: Peer, start_time: int) -> int:
    """Opens a pidfd of the peer. Raises ProcessLookupError if it has ended.

    SO_PEERPIDFD (Linux 6.5) always refers to the process that connected. Without it another process might have got the
    pid in the meantime, which the start time tells.
    """
    try:
        packed = sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, 4)
    except ProcessLookupError:
        raise
    except OSError:
        return open_process(peer.pid, start_time)
    return int(struct.unpack("i", packed)[0])


class Access:
    """Who may connect: the daemon's own user, root, and the members of the configured group, if any.

    Raises OSError if this process cannot read its own pid namespace.
    """

    def __init__(self, group_id: int | None = None, group_name: str | None = None) -> None:
        self._own_uid = os.geteuid()
        self._group_id = group_id
        self._group_name = group_name
        self._pid_namespace = own_namespace("pid")

    def check_credentials(self, peer: Peer) -> None:
        """Raises PermissionError, which says what to do, unless the peer may use this daemon."""
        if peer.pid == 0:
            raise PermissionError(self._other_namespace())
        if peer.uid in (self._own_uid, 0) or (self._group_id is not None and self._group_id in peer.groups):
            return
        allowed = f"uid {self._own_uid} and root"
        remedy = "start shmreplayd with --group NAME and join that group"
        if self._group_id is not None:
            allowed += f" and members of group {self._group_name}"
            remedy = f"join group {self._group_name} (usermod -aG {self._group_name} USER, then log in again)"
        raise PermissionError(f"permission denied for {peer}: this shmreplayd serves {allowed}; {remedy}")

    def check_namespace(self, peer: Peer, claimed: object) -> None:
        """Raises PermissionError unless the peer is in this daemon's pid namespace.

        `claimed` is the namespace that the peer named in its hello. It is used only where /proc hides other users'
        namespaces. The check finds mistakes in a set-up; it does not defend against a peer that lies.
        """
        found = pid_namespace_of(peer.pid)
        if found is None and isinstance(claimed, int):
            found = claimed
        if found is not None and found != self._pid_namespace:
            raise PermissionError(self._other_namespace())

    @staticmethod
    def _other_namespace() -> str:
        return (
            "clients must share the pid namespace of shmreplayd, because the kernel finds the dead owner of a shared "
            "lock by its thread id; run the container with --pid=host (or --pid=container:NAME), in Kubernetes with "
            "shareProcessNamespace: true"
        )
