"""Writes shmreplay/_core.pyi from the built binding.

usage: stubs.py

nanobind writes containers without the types of their elements. mypy --strict requires those, so `Any` is added.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONTENTS = {"dict": "dict[Any, Any]", "tuple": "tuple[Any, ...]", "list": "list[Any]", "Sequence": "Sequence[Any]"}
BARE = re.compile(r"(: |-> |\[)(dict|tuple|list|Sequence)\b(?!\[)")


def complete(stub: str) -> str:
    """Returns the stub with `Any` as the element type of every bare container."""
    completed = BARE.sub(lambda match: match[1] + CONTENTS[match[2]], stub)
    if completed == stub:
        return stub
    first_code = re.search(r"^(?:from|import|class|def|\w+:)", completed, re.MULTILINE)
    at = first_code.start() if first_code else 0
    return f"{completed[:at]}from typing import Any\n{completed[at:]}"


if __name__ == "__main__":
    target = ROOT / "shmreplay" / "_core.pyi"
    stubgen = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "shmreplay._core", "-o", str(target)]
    subprocess.run(stubgen, check=True)
    target.write_text(complete(target.read_text(encoding="utf-8")), encoding="utf-8")
