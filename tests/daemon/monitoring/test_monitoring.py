"""The dashboard and the alert rules: they load, and ask for metrics and labels that a daemon has."""

import json
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml
from prometheus_client.core import CounterMetricFamily, GaugeHistogramMetricFamily

import shmreplay as sr
from shmreplay.daemon.figures.metrics import Snapshot
from tests.support.repository import ROOT
from tests.support.waiting import WAIT_S

FOLDER = ROOT / "daemon" / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
EXPRESSIONS = [
    *(pytest.param(rule["expr"], rule["annotations"]["summary"], id=rule["alert"]) for rule in RULES),
    *(
        pytest.param(target["expr"], target["legendFormat"], id=f"{panel['title']}-{target['refId']}")
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    ),
]


@pytest.fixture(scope="module")
def labels() -> dict[str, set[str]]:
    """The labels of every metric, by its name as it is asked for."""
    with sr.Server([sr.Table("a", {"x": sr.ArraySpec((), "bool")}, 10)]) as server, server.client() as client:
        stats = client.stats(items=True)
    found = {"up": {"job", "instance"}}
    for family in Snapshot(stats).collect():
        names = set(family._labelnames)  # type: ignore[attr-defined]
        if isinstance(family, GaugeHistogramMetricFamily):
            found[f"{family.name}_bucket"] = names | {"le"}
        else:
            found[family.name + ("_total" if isinstance(family, CounterMetricFamily) else "")] = names
    return found


@pytest.mark.parametrize(("expression", "text"), EXPRESSIONS)
def test_an_expression_asks_for_what_there_is(expression: str, text: str, labels: dict[str, set[str]]) -> None:
    names = re.findall(r"\bshmreplay_\w+|\bup\b", expression)
    assert names
    assert set(names) <= labels.keys()
    for name, selected in re.findall(r"(\w+)\{(\w+)=", expression):
        assert selected in labels[name]
    for shown in re.findall(r"\{\{ ?\$?(?:labels\.)?(\w+) ?\}\}", text):
        assert shown == "value" or all(shown in labels[name] for name in names[:1]), shown


def test_every_rule_says_what_it_means_and_no_two_panels_lie_on_each_other() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["description"].endswith((".", "shmreplayd"))
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)


@pytest.fixture
def promtool() -> str:
    """Prometheus' own."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian's package is called prometheus)")
    return found


def test_prometheus_takes_the_rules_and_they_fire_when_they_should(promtool: str, tmp_path: pathlib.Path) -> None:
    rules = FOLDER / "alerts.yml"
    checked = subprocess.run([promtool, "check", "rules", rules], capture_output=True, text=True, timeout=WAIT_S)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"SUCCESS: {len(RULES)} rules found" in checked.stdout
    cases = (ROOT / "tests" / "system" / "alerts_test.yml").read_text(encoding="utf-8")
    (tmp_path / "cases.yml").write_text(cases.replace("[RULES]", f"[{rules}]"), encoding="utf-8")
    command = [promtool, "test", "rules", str(tmp_path / "cases.yml")]
    tested = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert tested.returncode == 0, tested.stdout + tested.stderr
