"""Finding: what one check of a GPU came to; and Run, all of them with the machine that they are of."""

import dataclasses
import json
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


@dataclasses.dataclass(frozen=True)
class Run:
    """Findings, and facts of the machine by name."""

    machine: dict[str, str]
    findings: Sequence[Finding]

    def lines(self) -> list[str]:
        """A table in Markdown, and the machine below."""
        rows = [(f.check, f.found, f.rule, f.verdict) for f in self.findings]
        table = [("check", "found", "rule", ""), ("---",) * 4, *rows]
        facts = ", ".join(f"{name}: {value}" for name, value in self.machine.items())
        return [*("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in table), "", facts]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Run":
        fields = json.loads(text)
        return cls(fields["machine"], [Finding(**finding) for finding in fields["findings"]])
