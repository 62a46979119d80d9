"""Workloads, in one file each. A new file needs only the name WORKLOADS to be found."""

import importlib
import pkgutil

from bench.workload import Workload


def all_workloads() -> list[Workload]:
    """The workloads of every file in this folder, in the order of the files' names."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return [workload for module in modules for workload in module.WORKLOADS]
