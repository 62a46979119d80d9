"""`shmreplay import --minari` and `export --minari`: a data set into a daemon's table and out again."""

import json
import pathlib
from typing import Any

import pytest

pytest.importorskip("minari", reason="minari is not installed")

import shmreplay as sr
from shmreplay.clients.cli.main import main
from tests.clients.minari.conftest import MakeDataset, make_dataset

__all__ = ["make_dataset"]

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")  # of metadata that is not given


def run(server: sr.Server, *arguments: str) -> int:
    return main([*arguments, "--socket", server.address])


def test_a_data_set_goes_in_and_comes_out(
    server: sr.Server, make_dataset: MakeDataset, tmp_path: pathlib.Path, capsys: Capture
) -> None:
    dataset = make_dataset("mine/shell-v0", 6)
    size = f"6 episodes, {dataset.total_steps} steps"
    assert run(server, "import", "shell", "--minari", "mine/shell-v0") == 0
    assert capsys.readouterr().out == f"mine/shell-v0: {size} are in table 'shell', which was made for it\n"
    assert run(server, "export", "shell", "--minari", "mine/out-v0") == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"mine/out-v0: {size} of table 'shell', in {tmp_path}")
    assert run(server, "export", "shell", "--minari", "mine/more-v0", "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["episodes"], found["steps"]) == (6, dataset.total_steps)
    assert run(server, "import", "shell", "--minari", "mine/more-v0", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["steps"], found["evicted_for_room"]) == (dataset.total_steps, 0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["import", "t"], "expected a FILE.npz or --minari DATASET, one of the two"),
        (["import", "t", "a.npz", "--minari", "mine/a-v0"], "expected a FILE.npz or --minari DATASET, one of the two"),
        (["import", "t", "--minari", "mine/none-v0"], "there is no data set 'mine/none-v0' in /"),
        (["export", "t", "--minari", "mine/a-v0", "--compress"], "--keys and --compress are for files"),
        (["export", "t", "--to", "a.npz", "--env", "CartPole-v1"], "--env is for data sets"),
    ],
)
def test_what_does_not_fit_together_is_said(
    server: sr.Server, make_dataset: MakeDataset, capsys: Capture, arguments: list[str], text: str
) -> None:
    assert run(server, *arguments) == 1
    assert text in capsys.readouterr().err
