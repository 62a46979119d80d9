"""Makes `bench` importable. It is not installed, and the root is no path: its `shmreplay` is not the installed one."""

import importlib.util
import sys

from tests.support.repository import ROOT

spec = importlib.util.spec_from_file_location("bench", ROOT / "bench" / "__init__.py")
assert spec is not None
sys.modules.setdefault("bench", importlib.util.module_from_spec(spec))
