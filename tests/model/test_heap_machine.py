"""Random operations on tables with columns in the heap, compared whole after every step."""

import functools

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.heap_machine import HeapMachine
from tests.support.rounds import rounds
from tests.support.tables import TableMaker


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*update_data hit none:UserWarning")
@pytest.mark.long
def test_a_table_with_a_heap_does_what_a_plain_list_of_items_does(make_table: TableMaker, seed: int) -> None:
    totals: dict[str, int] = {}
    run_state_machine_as_test(
        functools.partial(HeapMachine, make_table, totals),  # type: ignore[arg-type]  # any maker of machines does
        settings=settings(
            max_examples=rounds(20, 40),
            stateful_step_count=40,
            phases=[phase for phase in Phase if phase != Phase.explain],  # which takes minutes here
        ),
    )
    print(f"{totals['wraps']} times the bytes of its heap in one run")
    assert totals["wraps"] >= rounds(1, 3), "no run wrote as many bytes as so many heaps have"
