"""scripts/patiently.sh, in which make builds the core."""

import pathlib
import subprocess

SCRIPT = str(pathlib.Path(__file__).resolve().parents[2] / "scripts" / "patiently.sh")


def test_it_says_that_a_silent_command_is_still_at_work() -> None:
    with subprocess.Popen(
        [SCRIPT, "0.1", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for _ in range(2):
            assert process.stdout.readline().startswith("   still at work after ")
        process.communicate("the end")  # returns once nobody has the pipe any more
        assert process.returncode == 0


def test_a_command_keeps_its_output_its_exit_code_and_its_arguments() -> None:
    command = [SCRIPT, "1000", "sh", "-c", 'echo "$1"; echo failed >&2; exit 3', "sh", "two  words"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "two  words\n", "failed\n")
