"""The chart in README.md is what `make chart` draws from the committed report, and it shows that report's numbers."""

import json
import os
import pathlib
import subprocess
import sys
from xml.etree import ElementTree

from tests.docs.test_docs import figures_of
from tests.docs.test_readme import README
from tests.support.repository import ROOT

CHART = ROOT / "docs" / "images" / "results.svg"
REPORT = ROOT / "bench" / "RESULTS.json"
PANELS = {  # title -> workload and metric in RESULTS.md
    "Insert one step of 400 B": ("insert_step_uniform_400B", 0),
    "Sample 256 of 100,000 items by priority": ("sample_prioritised_100k_400B", 0),
    "Update 256 priorities of 100,000": ("update_priorities_100k", 0),
    "4 actors insert while a learner samples": ("mixed", 0),
}
PEERS = {"shmreplay": "", "cpprb": "cpprb", "Reverb": "reverb", "TorchRL": "torchrl"}


def draw(report: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    """Runs the command from the root, which PYTHONSAFEPATH would hide."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", "bench.chart", str(report)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_the_committed_chart_is_what_the_command_draws() -> None:
    drawn = draw(REPORT)
    assert drawn.returncode == 0, drawn.stderr
    assert CHART.read_text(encoding="utf-8") == drawn.stdout, "run `make chart`"
    assert f"]({CHART.relative_to(ROOT)})" in README


def test_it_shows_the_numbers_of_the_results() -> None:
    results = (ROOT / "bench" / "RESULTS.md").read_text(encoding="utf-8")
    texts = ElementTree.parse(CHART).getroot().iter("{http://www.w3.org/2000/svg}text")
    shown = [str(text.text) for text in texts]
    starts = [shown.index(title) for title in PANELS]
    assert starts == sorted(starts)
    for start, end, (workload, column) in zip(starts, [*starts[1:], len(shown)], PANELS.values(), strict=True):
        bars = dict(zip(shown[start + 2 : end : 2], shown[start + 3 : end : 2], strict=False))
        assert {"shmreplay", "cpprb", "Reverb"} <= bars.keys()
        for name in bars.keys() & PEERS.keys():
            assert bars[name] == figures_of(results, workload, PEERS[name])[column], (workload, name)


def test_a_report_without_one_of_its_workloads_is_refused(tmp_path: pathlib.Path) -> None:
    fields = json.loads(REPORT.read_text(encoding="utf-8"))
    fields["answers"] = [answer for answer in fields["answers"] if answer["name"] != "mixed"]
    poorer = tmp_path / "report.json"
    poorer.write_text(json.dumps(fields), encoding="utf-8")
    drawn = draw(poorer)
    assert (drawn.returncode, drawn.stdout) == (1, "")
    assert drawn.stderr.startswith("bench.chart: the report has no answer mixed, of which the chart has a panel")
