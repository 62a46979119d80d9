"""python -m bench.peers.install [NAME ...]: makes the environments of the peers, under build/peers."""

import argparse
import subprocess
import sys
from collections.abc import Sequence

from bench.peers.catalogue import ENVIRONMENTS, PEERS, ROOT, Peer


def main(arguments: Sequence[str]) -> int:
    with_one = [peer for peer in PEERS if peer.requirements]
    names = [peer.name for peer in with_one]
    p = argparse.ArgumentParser(prog="python -m bench.peers.install", description="the peers' environments")
    p.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)} (default: all)")
    chosen = p.parse_args(arguments).names or names
    if unknown := set(chosen) - set(names):
        p.error(f"no peer is called {' or '.join(sorted(unknown))}; there are {', '.join(names)}")
    failed = [peer.name for peer in with_one if peer.name in chosen and not install(peer)]
    if failed:
        print(f"not installed: {', '.join(failed)}; they are left out of a run", file=sys.stderr)
    return 1 if failed else 0


def install(peer: Peer) -> bool:
    """Makes the environment of a peer if it is missing. Returns whether it exists now."""
    if (version := peer.version()) is not None:
        print(f"{peer.name} {version} is there")
        return True
    folder = ENVIRONMENTS / peer.name
    commands = [[f"python{peer.python}", "-m", "venv", "--clear", str(folder)]]
    pip = [str(peer.interpreter), "-m", "pip", "install", "-q"]
    commands += [[*pip, *requirements] for requirements in peer.requirements]
    if peer.builds:
        commands.append([str(peer.interpreter), "-m", peer.builds])
    for command in commands:
        print(" ".join(command), flush=True)
        try:
            subprocess.run(command, check=True, cwd=ROOT)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{peer.name}: {error}", file=sys.stderr)
            return False
    return peer.is_installed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
