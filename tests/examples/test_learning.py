"""The examples that learn: each, run in small, ends with returns that are impossible by chance."""

import importlib
import pathlib
import re
import sys
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"

Run = Callable[..., dict[str, float]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs an example's `main`; returns the numbers of its lines "what: number".

    In this process, since PyTorch takes seconds to load; its actors find the example by the path.
    """

    def run(name: str, *options: str) -> dict[str, float]:
        monkeypatch.syspath_prepend(EXAMPLES)
        monkeypatch.setattr(sys, "argv", [name, "--seed", "1", *options])
        importlib.import_module(name).main()
        said = re.findall(r"^(.*): (-?[\d.]+)$", capsys.readouterr().out, re.MULTILINE)
        return {what: float(number) for what, number in said}

    return run


@pytest.mark.parametrize("name", ["apex_dqn", "impala_queue", "r2d2", "sac_vector"])
@pytest.mark.one_quick
def test_returns_are_saved_as_an_image(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.syspath_prepend(EXAMPLES)
    file = tmp_path / "returns.png"
    importlib.import_module(name).save_plot(str(file), np.arange(300.0))
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("apex_dqn", ["--actors", "0"], "at least 1 actor"),
        ("apex_dqn", ["--updates", "99"], "100 updates"),
        ("impala_queue", ["--actors", "0"], "at least 1 actor"),
        ("impala_queue", ["--updates", "9"], "10 updates"),
        ("r2d2", ["--updates", "99"], "100 updates"),
        ("r2d2", ["--seed", "-1"], "not negative"),
        ("sac_vector", ["--steps", "1999"], "2000 steps"),
        ("r2d2", ["--plot", "{tmp}/missing/returns.png"], "argument --plot: .*No such file"),
        ("r2d2", ["--plot", "{tmp}/returns.nothing"], "argument --plot: .*'nothing' is not supported"),
    ],
)
def test_options_that_cannot_be_followed_are_refused_before_anything_is_learned(
    name: str,
    options: list[str],
    complaint: str,
    run: Run,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "--plot" in options:
        pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    with pytest.raises(SystemExit):
        run(name, *(option.format(tmp=tmp_path) for option in options))
    assert re.search(complaint, capsys.readouterr().err.splitlines()[-1])


@pytest.mark.long
def test_ape_x_keeps_the_pole_up_longer_than_chance(run: Run) -> None:
    """Random actions make 22 on average, a network of random weights 10."""
    found = run("apex_dqn", "--actors", "2", "--updates", "1200")
    assert found["mean return without exploration"] > 50


@pytest.mark.long
def test_sac_swings_pendulums_up(run: Run) -> None:
    """Random actions make about -1200."""
    found = run("sac_vector", "--steps", "2412")
    assert found["mean return of the first 4 episodes"] < -900
    assert found["mean return of the last 4 episodes"] > -700


@pytest.mark.long
def test_impala_catches_what_falls(run: Run) -> None:
    found = run("impala_queue", "--actors", "1", "--updates", "250")
    assert found["mean return in the first tenth"] < 0
    assert found["mean return in the last tenth"] > 0.5
    assert found["part of the batches that were read without a copy"] > 0.9


@pytest.mark.long
def test_r2d2_remembers_what_it_saw(run: Run) -> None:
    """Without memory, no policy gets more than 0 on average."""
    found = run("r2d2", "--updates", "700")
    assert found["mean return in the first tenth"] < 0
    assert found["mean return in the last tenth"] > 0.4


@pytest.mark.long
def test_sb3_prioritized_dqn_learns(run: Run) -> None:
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    returns = run("sb3_prioritized_dqn", "--steps", "6000")
    assert returns["mean return of the last 10 episodes"] > 60  # of random actions: 22
