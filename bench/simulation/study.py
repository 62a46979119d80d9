"""Study: costs of a machine, the model checked there, and the curves for larger machines; one JSON file."""

import dataclasses
import json
import re
from collections.abc import Iterator

from bench import machine
from bench.simulation.check import Pair, pairs
from bench.simulation.costs import Costs
from bench.simulation.curves import SOCKETS, Crowd, Outcome, curves, shards_pay_from
from bench.simulation.measured import measure

FORMAT = 1
CORES = 264  # one for each of 256 writers and 8 learners
CHECKED_NS, CURVES_NS = 50e6, 5e6  # of simulated time


@dataclasses.dataclass(frozen=True)
class Study:
    """What `python -m bench --cores` finds.

    Attributes:
        machine: facts about it, by name.
        costs: taken from it.
        checks: crowds on its own cores, measured and simulated.
        one_socket: the curves with a core for each process, and its costs.
        two_sockets: the same where lines take twice as long from core to core.
    """

    machine: dict[str, str]
    costs: Costs
    checks: tuple[Pair, ...]
    one_socket: tuple[Outcome, ...]
    two_sockets: tuple[Outcome, ...]

    def to_json(self) -> str:
        text = json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1)
        return re.sub(r'\{[^{}]*"writers"[^{}]*\}', lambda crowd: " ".join(crowd[0].split()), text) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Study":
        """Reads a study. Raises ValueError if it has another format."""
        fields = json.loads(text)
        if (found := fields.pop("format")) != FORMAT:
            raise ValueError(f"the study is of format {found}; expected {FORMAT}")
        return cls(
            fields["machine"],
            Costs(**fields["costs"]),
            tuple(Pair(_outcome(pair["measured"]), _outcome(pair["simulated"])) for pair in fields["checks"]),
            tuple(_outcome(outcome) for outcome in fields["one_socket"]),
            tuple(_outcome(outcome) for outcome in fields["two_sockets"]),
        )


def study(num_cores: int) -> Iterator[Pair | Study]:
    """Yields each crowd as soon as it is measured, then the whole study."""
    facts, costs = machine.facts(), measure()
    checks = []
    for pair in pairs(costs, num_cores, CHECKED_NS):
        checks.append(pair)
        yield pair
    two = curves(costs.with_sockets(SOCKETS), CORES, CURVES_NS)
    yield Study(facts, costs, tuple(checks), tuple(curves(costs, CORES, CURVES_NS)), tuple(two))


def line(pair: Pair) -> str:
    """One crowd for the terminal, as it was measured and, in brackets, simulated."""
    measured, simulated, crowd = pair.measured, pair.simulated, pair.measured.crowd
    inserts = f"inserts {measured.inserts_per_s / 1e6:.2f} M/s ({simulated.inserts_per_s / 1e6:.2f})"
    samples = f", samples {measured.samples_per_s / 1e6:.2f} M/s ({simulated.samples_per_s / 1e6:.2f})"
    return f"{name(crowd)}: {inserts}{samples if crowd.learners else ''}"


def name(crowd: Crowd) -> str:
    """A crowd in words."""
    learners = f", {crowd.learners} learner{'s' if crowd.learners > 1 else ''}" if crowd.learners else ""
    shards = f", {crowd.shards} shards" if crowd.shards > 1 else ""
    return f"{crowd.writers} writer{'s' if crowd.writers > 1 else ''}{learners}{shards}"


def conclusions(found: Study) -> Iterator[str]:
    """From how many writers on four shards pay, for the terminal and the page."""
    for learners in (0, 1, 8):
        writers = [shards_pay_from(outcomes, learners) for outcomes in (found.one_socket, found.two_sockets)]
        texts = ["nowhere" if fewest is None else f"from {fewest} writers on" for fewest in writers]
        yield (
            f"four shards take a quarter more inserts than one, beside {learners} learners: "
            f"on one socket {texts[0]}, on two {texts[1]}"
        )


def _outcome(fields: dict[str, object]) -> Outcome:
    return Outcome(**{**fields, "crowd": Crowd(**fields["crowd"])})  # type: ignore[arg-type]
