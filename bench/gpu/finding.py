"""Finding: what one check of a GPU came to."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Finding:
    """A row of the report.

    Attributes:
        check: what was done.
        found: what came of it, or why it was not done.
        rule: what it has to come to; "" if it is written down only.
        is_kept: whether the rule was kept; None if there is none, or if the check was not done.
    """

    check: str
    found: str
    rule: str = ""
    is_kept: bool | None = None

    @property
    def verdict(self) -> str:
        return {True: "kept", False: "NOT KEPT", None: ""}[self.is_kept]


def skipped(check: str, why: str) -> Finding:
    """Of a check that can not be done here."""
    return Finding(check, f"skipped: {why}")


def page(findings: Sequence[Finding]) -> str:
    """The findings as a table in Markdown."""
    rows = [(f.check, f.found, f.rule, f.verdict) for f in findings]
    head = [("check", "found", "rule", ""), ("---",) * 4]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in [*head, *rows])
