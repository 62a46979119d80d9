"""Targets: what a run must reach, as data. For each, a report says what was reached and whether that is enough."""

import dataclasses
from collections.abc import Callable
from typing import Literal

from bench.answer import Answer, Row, Summary, label
from bench.report import Report, number, quantity

Verdict = Literal["met", "missed", "not measured"]


@dataclasses.dataclass(frozen=True)
class Reached:
    """What a run reached of a target.

    Attributes:
        value: compared with the target's bound.
        text: the value as text, with min and max if there are several.
    """

    value: float
    text: str


@dataclasses.dataclass(frozen=True)
class Target:
    """One thing that a run must reach.

    Attributes:
        what: what is measured, in words.
        wanted: the bound, in words.
        at_least: the bound, if more is better; otherwise None.
        at_most: the bound, if less is better; otherwise None.
        reached: returns what a report reached; None if it was not measured.
    """

    what: str
    wanted: str
    reached: Callable[[Report], Reached | None]
    at_least: float | None = None
    at_most: float | None = None

    def verdict(self, reached: Reached | None) -> Verdict:
        if reached is None:
            return "not measured"
        enough = self.at_least is None or reached.value >= self.at_least
        little = self.at_most is None or reached.value <= self.at_most
        return "met" if enough and little else "missed"


# --- how a report is asked -------------------------------------------------------------------------------------------


def times(workload: str, part: str, metric: str | None = None) -> Callable[[Report], Reached | None]:
    """How many times as good as the best row whose label contains `part` ours is, pair by pair."""

    def reached(report: Report) -> Reached | None:
        answer = report.answer(workload)
        rows = [row for row in answer.rows if part in label(row) and row.ours_over_this] if answer is not None else []
        if answer is None or not rows:
            return None
        chosen = metric or answer.metrics[0].name
        found = [(_times_as_good(answer, row, chosen), row) for row in rows]
        least, row = min(found, key=lambda one: one[0].median)
        text = f"{number(least.median)} ({number(least.min)} to {number(least.max)})"
        return Reached(least.median, f"{text} times {row.name}" if len(rows) > 1 else text)

    return reached


def _times_as_good(answer: Answer, row: Row, metric: str) -> Summary:
    (better,) = [m.better for m in answer.metrics if m.name == metric]
    s = row.ours_over_this[metric]
    if better == "more":
        return s
    return Summary.of([1 / value if value else float("inf") for value in s.all])


def over(workload: str, part: str, metric: str | None = None) -> Callable[[Report], Reached | None]:
    """Ours divided by the first row whose label contains `part`, pair by pair."""

    def reached(report: Report) -> Reached | None:
        answer = report.answer(workload)
        row = answer.row(part) if answer is not None else None
        if answer is None or row is None or not row.ours_over_this:
            return None
        s = row.ours_over_this[metric or answer.metrics[0].name]
        return Reached(s.median, f"{number(s.median)} ({number(s.min)} to {number(s.max)})")

    return reached


def ours(workload: str, metric: str | None = None, part: str = "") -> Callable[[Report], Reached | None]:
    """Our own value: that of our first row, or of our row whose label contains `part`."""

    def reached(report: Report) -> Reached | None:
        answer = report.answer(workload)
        row = answer.row(part or "shmreplay ") if answer is not None else None
        if answer is None or row is None:
            return None
        chosen = next(m for m in answer.metrics if metric in (None, m.name))
        s = row.values[chosen.name]
        texts = [quantity(value, chosen) for value in (s.median, s.min, s.max)]
        return Reached(s.median, f"{texts[0]} ({texts[1]} to {texts[2]})")

    return reached


def of_the_best(workload: str, others: str, metric: str) -> Callable[[Report], Reached | None]:
    """Our median, divided by our best median in all workloads whose names begin with `others`."""

    def reached(report: Report) -> Reached | None:
        answer = report.answer(workload)
        if answer is None:
            return None
        best = max(a.ours.values[metric].median for a in report.answers if a.name.startswith(others))
        part = answer.ours.values[metric].median / best
        return Reached(part, number(part))

    return reached


def inverse(workload: str, part: str, metric: str) -> Callable[[Report], Reached | None]:
    """The first row whose label contains `part`, divided by ours, pair by pair."""

    def reached(report: Report) -> Reached | None:
        answer = report.answer(workload)
        row = answer.row(part) if answer is not None else None
        if row is None or not row.ours_over_this:
            return None
        s = Summary.of([1 / value if value else float("inf") for value in row.ours_over_this[metric].all])
        return Reached(s.median, f"{number(s.median)} ({number(s.min)} to {number(s.max)})")

    return reached


def worst(workload: str, part: str, metric: str) -> Callable[[Report], Reached | None]:
    """The largest of our rows whose labels contain `part`, each divided by our first row, pair by pair."""

    def reached(report: Report) -> Reached | None:
        answer = report.answer(workload)
        rows = [row for row in answer.rows[1:] if part in label(row) and row.ours_over_this] if answer else []
        found = [(Summary.of([1 / value for value in row.ours_over_this[metric].all if value]), row) for row in rows]
        if not found:
            return None
        s, row = max(found, key=lambda one: one[0].median)
        return Reached(s.median, f"{number(s.median)} ({number(s.min)} to {number(s.max)}) for {row.name}")

    return reached


def beyond(workload: str, part: str, metric: str = "a call") -> Callable[[Report], Reached | None]:
    """What our value has beyond that of the first row whose label contains `part`: the difference of their medians."""

    def reached(report: Report) -> Reached | None:
        answer = report.answer(workload)
        row = answer.row(part) if answer is not None else None
        if answer is None or row is None:
            return None
        (chosen,) = [m for m in answer.metrics if m.name == metric]
        value = answer.ours.values[metric].median - row.values[metric].median
        return Reached(value, quantity(value, chosen))

    return reached


def allowed(workload: str, metric: str, of: str, fixed: float, per_mib: float) -> Callable[[Report], Reached | None]:
    """A metric of ours, divided by a fixed cost plus `per_mib` for each MiB of another metric."""

    def reached(report: Report) -> Reached | None:
        answer = report.answer(workload)
        if answer is None:
            return None
        values = answer.ours.values
        part = values[metric].median / (fixed + per_mib * values[of].median / 2**20)
        (chosen,) = [m for m in answer.metrics if m.name == metric]
        return Reached(part, f"{number(part)} of it: {quantity(values[metric].median, chosen)}")

    return reached


# --- the targets -----------------------------------------------------------------------------------------------------

US, MS = 1e3, 1e6

TARGETS: tuple[Target, ...] = (
    Target("insert per step, 400 B", "≥ 12 × cpprb's add", times("insert_step_uniform_400B", "peer: cpprb"), 12),
    Target(
        "insert per step, 400 B",
        "≥ 25 × Reverb's structured writer",
        times("insert_step_uniform_400B", "peer: reverb"),
        25,
    ),
    Target("insert per step, 400 B", "≤ 1.2 µs a call", ours("insert_step_uniform_400B"), at_most=1.2 * US),
    Target("append + create_item per step", "≤ 1.5 µs", ours("append_item"), at_most=1.5 * US),
    Target(
        "insert_batch of 256 stacked rows, 400 B, uniform",
        "≥ 1.5 × cpprb",
        times("insert_batch_uniform_256_400B", "peer: cpprb"),
        1.5,
    ),
    Target(
        "insert_batch of 256 stacked rows, 400 B, prioritised",
        "≥ 1.0 × cpprb",
        times("insert_batch_prioritised_256_400B", "peer: cpprb"),
        1.0,
    ),
    Target(
        "256 separate dicts from Python, per step",
        "≥ 3 × cpprb's add of 64 stacked by its caller",
        times("insert_dicts", "peer: cpprb"),
        3,
    ),
    *(
        target
        for workload, whose in (("values_append", "append"), ("values_vector_append", "append of 64 streams"))
        for target in (
            Target(
                f"{whose}, a float64 reward for float32",
                "≤ 1.3 × a float32 one",
                inverse(workload, "a float64 reward", "a call"),
                at_most=1.3,
            ),
            Target(
                f"{whose}, values of other dtypes and orders, tensors",
                "none over 3 × float32 as the column has it",
                worst(workload, "append of", "a call"),
                at_most=3,
            ),
        )
    ),
    Target("end_episodes of 64 streams, none ends", "≤ 0.5 µs", ours("no_ends"), at_most=0.5 * US),
    *(
        Target(
            f"VectorRecorder.step of {num} environments",
            f"≤ {bound} µs over their own step",
            beyond(f"recorder_{num}", "own step"),
            at_most=bound * US,
        )
        for num, bound in ((4, 12), (64, 40))
    ),
    *(
        Target(what, "≤ 5 µs more", beyond(f"{workload}_{num}", part), at_most=5 * US)
        for num, of in ((1, "one stream"), (64, "64 streams"))
        for what, workload, part in (
            (f"append in two parts beside whole steps, {of}", "open_rows", "append of whole steps"),
            (f"item of a kept selection beside the newest steps, {of}", "selections", "item of the newest steps"),
        )
    ),
    *(
        Target(
            f"{call} of Stable-Baselines3's buffer, {name}",
            f"≤ {bound} × theirs",
            over(f"sb3_{call}_{name}", "stable_baselines3"),
            at_most=bound,
        )
        for call in ("add", "sample")
        for name, bound in (("floats", 1.5), ("images", 0.7))
    ),
    Target("insert of 40 kB", "≥ 0.9 of memcpy", times("insert_step_uniform_40kB", "memcpy into warm"), 0.9),
    Target("insert of 400 kB", "≥ 0.9 of memcpy", times("insert_step_uniform_400kB", "memcpy into warm"), 0.9),
    *(
        Target(f"uniform sample of 256, 400 B, {named} items", f"≥ {bound:g} × {whom}", times(workload, part), bound)
        for named, workload in (("100 k", "sample_uniform_100k_400B"), ("1 M", "sample_uniform_1M_400B"))
        for bound, whom, part in ((2.5, "cpprb", "peer: cpprb"), (75, "Reverb in process", "peer: reverb"))
    ),
    *(
        Target("prioritised sample of 256, 400 B, 100 k items", f"≥ {bound} × {whom}", times(workload, part), bound)
        for workload in ("sample_prioritised_100k_400B",)
        for bound, whom, part in ((3, "cpprb", "peer: cpprb"), (60, "Reverb in process", "peer: reverb"))
    ),
    *(
        Target("gather of 40 kB rows", f"≥ {bound:g} of {whom}", times("sample_uniform_10k_40kB", part), bound)
        for bound, whom, part in (
            (0.95, "the C++ gather", "C++ gather of the rows from 5"),
            (1.0, "np.take(out=)", "take(out=) of the rows from 5"),
        )
    ),
    Target(
        "update_priorities of 256, 1 M items", "≥ 1.2 × the fastest peer", times("update_priorities_1M", "peer: "), 1.2
    ),
    Target(
        "insert to blocked sample, p50",
        "≤ 2.5 × one futex wake between processes",
        over("woken", "wake from core to core", "p50"),
        at_most=2.5,
    ),
    Target(
        "insert to blocked sample, p99",
        "≤ 4 × one futex wake between processes",
        over("woken", "wake from core to core", "p99"),
        at_most=4,
    ),
    Target("mixed, inserts", "≥ 5 × the best peer", times("mixed", "peer: ", "inserts a second"), 5),
    Target("mixed, samples", "≥ 10 × the best peer", times("mixed", "peer: ", "samples a second"), 10),
    *(
        target
        for num in (64, 512)
        for target in (
            Target(
                f"{num} writers, total",
                "≥ 0.85 of the best total",
                of_the_best(f"writers_{num}", "writers_", "inserts a second"),
                0.85,
            ),
            Target(
                f"{num} writers, the slowest one's share",
                "≥ 0.8 of that without a common lock",
                over(f"writers_{num}", "a table each", "slowest writer's share"),
                0.8,
            ),
        )
    ),
    *(
        target
        for num, writers in ((1, "1 writer"), (4, "4 writers"))
        for target in (
            Target(
                f"{writers} beside a learner that samples flat out",
                "each ≥ half of its share without a common lock",
                over(f"beside_{num}", "a table each", "slowest writer's inserts a second"),
                0.5,
            ),
            Target(
                f"{writers} beside a learner at full speed, p99 of an insert",
                "≤ 10 × the median",
                ours(f"beside_{num}", "p99 / p50"),
                at_most=10,
            ),
        )
    ),
    Target(
        "learner with 256 attached writers, samples of its own time",
        "≥ 0.9 of that with none",
        inverse("attached", "256 writers", "samples a second of its processor time"),
        0.9,
    ),
    Target("growth 10^4 to 10^7, sample", "≤ 3 ×", over("growth_sample_1e7", "among 10,000"), at_most=3),
    Target("growth 10^4 to 10^7, update", "≤ 8 ×", over("growth_update_1e7", "among 10,000"), at_most=8),
    *(
        Target(
            f"{verb} among 10^{exponent}",
            "≤ 1.5 × the bare C++ limit",
            over(f"growth_{verb}_1e{exponent}", "bare sum tree"),
            at_most=1.5,
        )
        for verb in ("sample", "update")
        for exponent in (4, 5, 6, 7)
    ),
    Target("200 blocked clients", "< 1 % of one core", ours("blocked"), at_most=1),
    Target(
        "one more client on a 10 GB arena, time",
        "≤ 15 ms + 0.12 ms a MiB of index",
        allowed("attach_10GB", "attach", "index", 15 * MS, 0.12 * MS),
        at_most=1,
    ),
    Target(
        "one more client on a 10 GB arena, private memory",
        "≤ 4 MB",
        ours("attach_10GB", "private bytes"),
        at_most=4e6,
    ),
    Target(
        "one more client on a 10 GB arena, page tables",
        "≤ 2 KiB a MiB of index",
        allowed("attach_10GB", "page tables", "index", 0, 2048),
        at_most=1,
    ),
    *(
        target
        for kind in ("noise", "tiles")
        for target in (
            Target(
                f"sequences with lz4, {kind}, bytes an item",
                "≤ Reverb's",
                over(f"sequences_{kind}", "peer: reverb", "bytes an item"),
                at_most=1,
            ),
            Target(
                f"sequences with lz4, {kind}, items out",
                "≥ 4 × Reverb",
                times(f"sequences_{kind}", "peer: reverb", "items out a second"),
                4,
            ),
        )
    ),
)
