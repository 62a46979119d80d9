"""`shmreplay demo` as a user runs it: it learns, says why it ends, and leaves nothing behind, whatever ends it."""

import contextlib
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.support.daemons import wait_for_end
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.usefixtures("nothing_left_by_this_test")

RUN = "import sys; from shmreplay.clients.cli.main import main; sys.exit(main(sys.argv[1:]))"
# A goal that is never reached keeps the demo going until the test ends it.
ENDLESS = ("--goal", "1e9")
WITHOUT_PACKAGE = "import sys; sys.modules[sys.argv.pop(1)] = None; " + RUN


class Demo:
    """The demo in a process group of its own, as a shell starts it."""

    def __init__(self, *arguments: str, source: str = RUN, **popen: object) -> None:
        popen = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        command = [sys.executable, "-c", source, *arguments]
        self.process: subprocess.Popen[str] = subprocess.Popen(command, text=True, start_new_session=True, **popen)  # type: ignore[call-overload]
        self._seen = ""

    def read_until(self, pattern: str) -> re.Match[str]:
        """Reads lines until one matches."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._seen += line
            if match := re.search(pattern, line):
                return match
        assert self.process.stderr is not None
        pytest.fail(f"no line matches {pattern!r}:\n{self._seen}{self.process.stderr.read()}")

    def interrupt(self) -> None:
        """What a terminal does on Ctrl-C: SIGINT for the demo and all that it has started."""
        os.killpg(self.process.pid, signal.SIGINT)

    def family(self) -> list[int]:
        """Process ids of the demo, its daemon, its actors and its learner."""
        own = psutil.Process(self.process.pid)
        return [own.pid, *(child.pid for child in own.children(recursive=True))]

    def finish(self) -> tuple[int, str, str]:
        """Waits for its end: exit code, output, errors."""
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, self._seen + (out or ""), err or ""

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def run_demo(nothing_left_by_this_test: None) -> Iterator[Callable[..., Demo]]:
    """Starts demos; those that still run at the end of the test are killed."""
    started: list[Demo] = []

    def run(*arguments: str, **options: object) -> Demo:
        started.append(Demo("demo", *arguments, **options))  # type: ignore[arg-type]
        return started[-1]

    yield run
    for demo in started:
        demo.close()


Run = Callable[..., Demo]
STARTED = r"actor 1 is process (\d+)"
LEARNING = r"samples/s [1-9]"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_it_learns_cartpole(run_demo: Run, seed: int) -> None:
    """Far from chance, which is 22; to solve it takes minutes on a busy machine."""
    demo = run_demo("--seed", str(seed), "--goal", "195")
    demo.read_until("^reached: mean return")
    code, out, err = demo.finish()
    assert (code, err) == (0, "")
    assert "asked for 8" in out


def test_it_says_when_the_time_was_not_enough(run_demo: Run) -> None:
    code, out, err = run_demo("--seconds", "0", "--actors", "1").finish()
    assert (code, err) == (1, "")
    assert "\nnot solved: mean return 0.0 of the last 20 episodes (CartPole-v1 counts as solved at 475) after " in out
    assert "\nnext:\n  the code of this demo" in out


def test_it_kills_an_actor_and_goes_on(run_demo: Run) -> None:
    """4,000 random steps are made in a moment; the learner has begun by then."""
    demo = run_demo("--actors", "2", *ENDLESS)
    first = int(demo.read_until(r"actor 0 is process (\d+)")[1])
    match = demo.read_until(
        r"^killed actor 0 \(process (\d+)\) with SIGKILL, on purpose: the table keeps its ([\d,]+) items"
    )
    assert int(match[1]) == first
    assert int(match[2].replace(",", "")) >= 3_900  # items of the steps that were inserted
    wait_for_end(first)
    started = int(demo.read_until(r"^actor 2 is process (\d+), in its place")[1])
    assert started in demo.family()
    demo.read_until(LEARNING)
    demo.interrupt()
    code, out, err = demo.finish()
    assert (code, err) == (130, "")
    assert "\ninterrupted: mean return" in out


@pytest.mark.long
def test_the_learning_curve_is_saved_as_an_image(run_demo: Run, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    file = tmp_path / "curve.png"
    code, out, err = run_demo("--seconds", "0", "--actors", "1", "--plot", str(file)).finish()
    assert (code, err) == (1, "")
    assert file.read_bytes().startswith(b"\x89PNG")
    assert f"\nthe curve is in {file}\n" in out


@pytest.mark.parametrize(
    ("file", "text"), [("missing/curve.png", "No such file or directory"), ("curve.nothing", "is not supported")]
)
def test_an_image_that_cannot_be_saved_is_refused_before_anything_is_learned(
    run_demo: Run, tmp_path: pathlib.Path, file: str, text: str
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    code, out, err = run_demo("--plot", str(tmp_path / file)).finish()
    assert (code, out) == (1, "")
    assert err.startswith("shmreplay demo: ")
    assert text in err


@pytest.mark.parametrize("moment", [STARTED, "waiting for the actors", LEARNING])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.one_quick
def test_ctrl_c_ends_it(run_demo: Run, moment: str, times: int) -> None:
    demo = run_demo("--actors", "2", *ENDLESS)
    demo.read_until(moment)
    family = demo.family()
    for _ in range(times):
        demo.interrupt()
    code, out, err = demo.finish()
    assert (code, err) == (130, "")
    assert re.search(r"^interrupted: mean return", out, re.MULTILINE)
    for pid in family:
        wait_for_end(pid)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("is_for_all", [False, True])
def test_a_signal_to_end_ends_it_and_all_that_it_started(
    run_demo: Run, number: signal.Signals, is_for_all: bool
) -> None:
    """Also one that a batch system sends to every process of the job."""
    demo = run_demo("--actors", "2", *ENDLESS)
    demo.read_until(LEARNING)
    family = demo.family()
    if is_for_all:
        os.killpg(demo.process.pid, number)
    else:
        demo.process.send_signal(number)
    code, _, err = demo.finish()
    assert (code, err) == (128 + number, "")
    for pid in family:
        wait_for_end(pid)


def test_everybody_ends_when_it_is_killed(run_demo: Run) -> None:
    demo = run_demo("--actors", "2", *ENDLESS)
    demo.read_until(LEARNING)
    family = demo.family()
    assert len(family) >= 5  # the demo, a daemon, a learner, two actors
    demo.process.kill()
    for pid in family:
        wait_for_end(pid)


@pytest.mark.parametrize("name", ["actor 1", "the learner"])
@pytest.mark.one_quick
def test_a_killed_process_ends_it_with_an_error_that_names_it(run_demo: Run, name: str) -> None:
    demo = run_demo("--actors", "2", *ENDLESS)
    pid = int(demo.read_until(rf"{name} is process (\d+)")[1])
    demo.read_until(LEARNING)
    os.kill(pid, signal.SIGKILL)
    code, _, err = demo.finish()
    assert (code, err) == (1, f"shmreplay demo: {name} (process {pid}) was killed by SIGKILL\n")


@pytest.mark.long
def test_a_failed_actor_ends_it_with_its_traceback(run_demo: Run, tmp_path: pathlib.Path) -> None:
    (tmp_path / "gymnasium.py").write_text("def make(name): raise RuntimeError(f'{name} is broken')")
    demo = run_demo("--actors", "1", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    pid = int(demo.read_until(r"actor 0 is process (\d+)")[1])
    code, _, err = demo.finish()
    assert code == 1
    assert err.startswith(f"shmreplay demo: actor 0 (process {pid}) ended with exit code 1:\nTraceback")
    assert err.endswith("RuntimeError: CartPole-v1 is broken\n")


@pytest.mark.parametrize("package", ["gymnasium", "rich", "matplotlib"])
def test_a_missing_package_is_one_line_with_the_command(package: str) -> None:
    demo = Demo(package, "demo", "--plot", "curve.png", source=WITHOUT_PACKAGE)
    with contextlib.closing(demo):
        assert demo.finish() == (1, "", f"shmreplay demo: needs {package}: python -m pip install {package}\n")


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--actors", "0", "--actors is 0; expected 1 or more"),
        ("--seconds", "-1", "--seconds is -1.0; expected 0 or more"),
        ("--seconds", "nan", "--seconds is nan; expected 0 or more"),
        ("--seed", "-1", "--seed is -1; expected 0 or more"),
        ("--goal", "0", "--goal is 0.0; expected 1 or more"),
    ],
)
def test_numbers_out_of_range_are_refused(run_demo: Run, option: str, value: str, text: str) -> None:
    assert run_demo(option, value).finish() == (1, "", f"shmreplay demo: {text}\n")


def test_a_terminal_gets_a_live_panel_and_its_cursor_back(run_demo: Run) -> None:
    ours, terminal = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    demo = run_demo("--actors", "1", "--seconds", "0", stdin=terminal, stdout=terminal, env=env)
    os.close(terminal)
    shown = b""
    with (
        contextlib.closing(os.fdopen(ours, "rb", buffering=0)),
        contextlib.suppress(OSError),
    ):  # EIO: all have closed it
        while piece := os.read(ours, 4096):
            shown += piece
    code, _, err = demo.finish()
    assert (code, err) == (1, "")
    text = shown.decode()
    for part in (
        "CartPole-v1, 1 actors, 1 learner",
        "mean return",
        "inserts/s",
        "samples/s",
        "table size",
        "not solved",
        "next:",
    ):
        assert part in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor stays hidden"
