"""Random writing, sampling and removing: several tables over the same steps, fed by windows and patterns."""

import functools

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import shmreplay as sr
from tests.model.rules_machine import RulesMachine
from tests.support.rounds import rounds


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*update_priorities hit none:UserWarning")
def test_tables_over_the_same_steps_do_what_plain_ones_do(server: sr.Server, seed: int) -> None:
    run_state_machine_as_test(
        functools.partial(RulesMachine, server, seed),  # type: ignore[arg-type]  # any maker of machines does
        settings=settings(
            max_examples=rounds(8, 40),
            phases=[phase for phase in Phase if phase != Phase.explain],  # which takes minutes here
        ),
    )
