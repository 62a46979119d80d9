"""Items that are not of the structure of their table: the error names both."""

import numpy as np
import pytest

import shmreplay as sr
from tests.clients.writers.rewarded import SIGNATURE, step
from tests.support.tables import TableMaker


def test_an_item_unlike_those_of_its_table_is_refused_by_both_structures(make_table: TableMaker) -> None:
    table = make_table(100, signature=SIGNATURE)
    table.insert(step(0))
    with table.writer(patterns=[sr.Sequence(2)]) as writer, table.vector_writer(1, patterns=[sr.Sequence(2)]) as vector:
        writer.append(step(0))
        text = r"append: patterns\[0\] shows several steps of observation, .*, but the items show one step of obs"
        with pytest.raises(sr.SignatureMismatch, match=text):
            writer.append(step(1))
        one = {name: np.array([value], SIGNATURE[name].dtype) for name, value in step(0).items()}
        vector.append(one)
        with pytest.raises(sr.SignatureMismatch, match=f"stream 0: {text}"):
            vector.append(one)
    with table.vector_writer(1, history=2) as vector:
        vector.append(one)
        text = (
            f"the item shows other things than those of its table: the items show one step .* in table {table.name!r}"
        )
        with pytest.raises(sr.SignatureMismatch, match=text):
            vector.create_items(trajectory={"x": vector.history["reward"][-1:]})
