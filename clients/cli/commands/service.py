"""`shmreplay service`: shmreplayd as a service of systemd."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass

from shmreplay.base.json_values import to_json
from shmreplay.errors import ShmReplayError

HOMES = ("/home", "/root", "/run/user")  # ProtectHome=yes hides these from a service
SYSTEM_FILES = {  # template -> where it goes
    "shmreplayd.service": "/etc/systemd/system/shmreplayd.service",
    "shmreplayd.socket": "/etc/systemd/system/shmreplayd.socket",
    "sysusers.conf": "/etc/sysusers.d/shmreplay.conf",
    "tmpfiles.conf": "/etc/tmpfiles.d/shmreplay.conf",
    "shmreplayd.toml": "/etc/shmreplay/shmreplayd.toml",
}
SYSTEM_NEXT: tuple[str, ...] = (
    "systemd-sysusers",
    "systemd-tmpfiles --create /etc/tmpfiles.d/shmreplay.conf",
    "systemctl daemon-reload",
    "systemctl enable --now shmreplayd",
    "usermod -aG shmreplay USER",
)
USER_NEXT: tuple[str, ...] = (
    "systemctl --user daemon-reload",
    "systemctl --user enable --now shmreplayd",
    "loginctl enable-linger",
)


@dataclass(frozen=True)
class File:
    """A file to be installed. `is_own`: the administrator may have changed it, so it is never overwritten."""

    path: str
    text: str
    is_own: bool

    def state(self) -> str:
        """Compares it with the file that exists: `new`, `changed`, `same`, or `kept`."""
        try:
            with open(self.path, encoding="utf-8") as file:
                found = file.read()
        except FileNotFoundError:
            return "new"
        if found == self.text:
            return "same"
        return "kept" if self.is_own else "changed"

    def write(self) -> None:
        """Writes the file completely, or not at all. Raises OSError."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        fresh = f"{self.path}.new"
        with open(fresh, "w", encoding="utf-8") as file:
            file.write(self.text)
        os.replace(fresh, self.path)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser("service", help="run shmreplayd as a service of systemd")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    install = actions.add_parser(
        "install",
        help="write its units and a configuration, and print the next steps",
        epilog="Units are overwritten by each call: change them with `systemctl edit shmreplayd`. An existing "
        "configuration is kept.",
    )
    whose = install.add_mutually_exclusive_group()
    whose.add_argument("--system", action="store_true", help="a system service, with a user of its own")
    whose.add_argument("--user", action="store_true", help="a user service of your own; needs no privileges")
    install.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would be written, and write nothing (default: for --system as root, else for --user)",
    )
    install.add_argument("--program", metavar="PATH", help="the shmreplayd to run (default: that of this installation)")
    install.add_argument("--root", metavar="DIR", default="/", help="write below DIR, as for a package or an image")
    install.add_argument("--json", action="store_true", help="print JSON")
    install.set_defaults(refuse=install.error)


def run(args: argparse.Namespace) -> int:
    """Writes the files, unless it is a dry run. Prints what it did with each, and the next steps.

    Raises ShmReplayError if the service could not run the program (a dry run only says so), OSError if a file cannot be
    written.
    """
    remarks = []
    is_system = args.system
    if not args.system and not args.user:
        if not args.dry_run:
            args.refuse("say which service: --system or --user")
        is_system = os.geteuid() == 0
        remarks.append(_chosen(is_system))
    program = args.program or _program()
    if is_system:
        if args.root == "/":  # with another root, the program will run elsewhere
            try:
                _check_visible(program)
            except ShmReplayError as error:
                if not args.dry_run:
                    raise
                remarks.append(f"without --dry-run this is an error: {error}")
        files, following = _files("system", SYSTEM_FILES, program, args.root), SYSTEM_NEXT
    else:
        files, following = _files("user", _user_files(), program, args.root), USER_NEXT
    states = {file.path: file.state() for file in files}
    if not args.dry_run:
        _write([file for file in files if states[file.path] in ("new", "changed")], is_system)
    if args.json:
        shown = [{"path": file.path, "state": states[file.path], "text": file.text} for file in files]
        plain = {"written": not args.dry_run, "files": shown, "next": following, "remarks": remarks}
        print(to_json(plain))
    else:
        for remark in remarks:
            print(f"shmreplay service: {remark}", file=sys.stderr)
        _print(files, states, following, args.dry_run)
    return 0


def _write(files: list[File], is_system: bool) -> None:
    """Writes the files. Raises ShmReplayError where this user may not, and says who may."""
    for file in files:
        try:
            file.write()
        except PermissionError as error:
            advice = "run it as root (sudo), or install one of your own (--user)" if is_system else "see its owner"
            raise ShmReplayError(
                f"{file.path} cannot be written: {error.strerror}; {advice}. --dry-run prints what would be written"
            ) from error


def _chosen(is_system: bool) -> str:
    """Says which service a dry run shows, if the user did not choose."""
    if is_system:
        return "this is what --system would write, because you are root; --user is for a service of your own"
    return "this is what --user would write; --system, as root, is for a system service"


def _print(files: list[File], states: dict[str, str], following: tuple[str, ...], is_dry: bool) -> None:
    for file in files:
        if is_dry:
            print(f"--- {file.path} ({states[file.path]})\n{file.text}")
        else:
            print(f"{states[file.path]:<8}{file.path}")
    print("next:")
    for command in following:
        print(f"    {command}")


def _files(kind: str, places: dict[str, str], program: str, root: str) -> list[File]:
    state = os.path.join(_base("XDG_STATE_HOME", ".local/state"), "shmreplay")
    values = {"@SHMREPLAYD@": _escaped(program), "@STATE@": state}
    files = []
    for name, path in places.items():
        text = _template(kind, name)
        for mark, value in values.items():
            text = text.replace(mark, value)
        files.append(File(os.path.join(root, path.lstrip("/")), text, name.endswith(".toml")))
    return files


def _template(kind: str, name: str) -> str:
    """A template of the installation. It lies beside the daemon's code, which is not imported for it."""
    spec = importlib.util.find_spec("shmreplay.daemon")
    assert spec is not None
    assert spec.origin is not None
    path = os.path.join(os.path.dirname(spec.origin), "systemd", kind, name)
    with open(path, encoding="utf-8") as file:
        return file.read()


def _user_files() -> dict[str, str]:
    """Where a user's own units and configuration go."""
    config = _base("XDG_CONFIG_HOME", ".config")
    return {
        "shmreplayd.service": f"{config}/systemd/user/shmreplayd.service",
        "shmreplayd.socket": f"{config}/systemd/user/shmreplayd.socket",
        "shmreplayd.toml": f"{config}/shmreplay/shmreplayd.toml",
    }


def _base(variable: str, below_home: str) -> str:
    return os.environ.get(variable) or os.path.join(os.path.expanduser("~"), below_home)


def _program() -> str:
    """The shmreplayd beside this Python, or the first one in $PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "shmreplayd")
    found = beside if os.access(beside, os.X_OK) else shutil.which("shmreplayd")
    if found is None:
        raise ShmReplayError(f"there is no shmreplayd beside {sys.executable} nor in $PATH; name it: --program PATH")
    return os.path.abspath(found)


def _check_visible(program: str) -> None:
    """Raises ShmReplayError if the program or its Python is in a home directory, which a system service cannot see."""
    if not os.access(program, os.X_OK):
        raise ShmReplayError(f"{program} is no program")
    for path in (program, os.path.realpath(program), *_interpreter(program)):
        home = next((home for home in HOMES if path.startswith(f"{home}/")), None)
        if home is not None:
            raise ShmReplayError(
                f"{path} lies in {home}, which a system service cannot see; install shmreplay elsewhere "
                "(python3 -m venv /opt/shmreplay), name another one (--program), or use --user"
            )


def _interpreter(program: str) -> list[str]:
    """The Python in a console script's first line, as it is named and with symbolic links resolved."""
    with open(program, "rb") as file:
        line = file.readline(4096).decode("utf-8", "replace")
    if not line.startswith("#!/"):
        return []
    path = line[2:].split()[0]
    return [path, os.path.realpath(path)]


def _escaped(path: str) -> str:
    """The path, quoted for ExecStart=."""
    doubled = path.replace("%", "%%").replace("$", "$$")
    return f'"{doubled}"' if any(letter.isspace() for letter in path) else doubled
