"""Weights exchange: the learner publishes them in a table of one item, the actors fetch the newest."""

from __future__ import annotations

from shmreplay.clients.demo.q_network import QNetwork
from shmreplay.clients.table import TableHandle


def publish(network: QNetwork, table: TableHandle) -> None:
    """Copies the weights into the table; those before them go."""
    table.insert(network.parameters)


def fetch(network: QNetwork, table: TableHandle) -> None:
    """Gives the network the newest weights; waits for the first ones."""
    newest = table.sample(1).data
    network.parameters = {name: values[0] for name, values in newest.items()}
