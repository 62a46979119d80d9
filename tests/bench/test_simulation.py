"""The simulation of one lock does what a lock does; studies are kept, and drawn."""

import dataclasses
import random
from xml.etree import ElementTree

import pytest

from bench.simulation.check import Pair
from bench.simulation.costs import Costs
from bench.simulation.curves import Crowd, simulate
from bench.simulation.model import Compute, Done, Leave, Lock, Model, Process, Program, Take
from bench.simulation.plot import plot
from bench.simulation.programs import spread
from bench.simulation.study import Study, conclusions

COSTS = Costs(
    outside_ns=500,
    insert_hold_ns=300,
    moved_hold_ns=400,
    batch_ns=30_000,
    draw_hold_ns=700,
    update_hold_ns=1500,
    look_ns=300,
    spin_ns=5000,
    gap_ns=700,
    wake_ns=30_000,
    wake_call_ns=1500,
    sleep_call_ns=1000,
    slice_ns=3e6,
)
MS = 1e6


def test_a_writer_alone_takes_the_time_of_its_parts() -> None:
    outcome = simulate(COSTS, Crowd(1), 2, 5 * MS)
    assert outcome.inserts_per_s == pytest.approx(1e9 / 800, rel=0.01)


def test_a_learner_alone_leaves_no_gap() -> None:
    batch_ns = COSTS.batch_ns + 16 * COSTS.draw_hold_ns + 8 * COSTS.update_hold_ns
    assert simulate(COSTS, Crowd(0, 1), 2, 5 * MS).samples_per_s == pytest.approx(256e9 / batch_ns, rel=0.02)


def test_writers_with_a_lock_each_do_not_slow_each_other_down() -> None:
    assert simulate(COSTS, Crowd(4, shards=4), 4, 5 * MS).inserts_per_s == pytest.approx(4e9 / 800, rel=0.01)


def test_one_lock_takes_no_more_than_one_hold_after_the_other() -> None:
    """Sixteen writers take the lock from each other nearly every time, so nearly each hold has to fetch its lines."""
    outcome = simulate(COSTS, Crowd(16), 16, 5 * MS)
    assert 1e9 / 700 * 0.7 < outcome.inserts_per_s < 1e9 / 300


@pytest.mark.parametrize("num_cores", [1, 2, 7, 32])
def test_nobody_is_in_the_lock_with_another_one_and_nobody_is_forgotten(num_cores: int) -> None:
    """More processes than cores: they are preempted, also inside the lock, sleep, are woken, and all come to a turn."""
    costs = dataclasses.replace(COSTS, slice_ns=20_000)
    model, lock, inside = Model(costs, num_cores, seed=num_cores), Lock(), list[Process]()

    def program(process: Process) -> Program:
        rng = random.Random(model.rng.random())
        while True:
            yield Compute(rng.uniform(0, 2000))
            yield Take(lock)
            inside.append(process)
            assert inside == [process]
            yield Compute(rng.uniform(0, 2000))
            assert inside == [process]
            assert process.core >= 0
            inside.clear()
            yield Leave(lock)
            yield Done(1)

    processes = [Process(program) for _ in range(12)]
    for process in processes:
        model.start(process)
    model.run(20 * MS)
    assert min(process.count for process in processes) > 0


def test_a_learners_batch_is_all_its_draws_whatever_the_shards() -> None:
    locks = [Lock() for _ in range(16)]
    assert len(spread(locks[:1], 16)) == 16
    assert [len(spread(locks[:k], 32)) for k in (1, 4, 16)] == [8, 8, 16]


def test_a_study_comes_back_from_its_file_and_says_where_shards_pay() -> None:
    outcomes = tuple(simulate(COSTS, Crowd(4, 0, shards), 4, MS) for shards in (1, 4))
    study = Study({"processor": "one", "cores": "2"}, COSTS, (Pair(outcomes[0], outcomes[0]),), outcomes, outcomes)
    assert Study.from_json(study.to_json()) == study
    assert next(iter(conclusions(study))).endswith("on one socket from 4 writers on, on two from 4 writers on")


def test_the_plot_has_a_line_for_each_number_of_shards_and_socket() -> None:
    crowds = [Crowd(n, learners, shards) for learners in (0, 1) for shards in (1, 4, 16) for n in (1, 16)]
    outcomes = tuple(simulate(COSTS, crowd, 32, MS / 4) for crowd in crowds)
    drawn = plot(Study({"processor": "one", "cores": "2"}, COSTS, (), outcomes, outcomes))
    lines = {line.get("class") for line in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}polyline")}
    assert lines == {f"line{apart} {shards}" for apart in ("", " apart") for shards in ("one", "four", "sixteen")}
