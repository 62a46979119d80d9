"""Finding: what one check of a GPU came to; and Run, all of them with the machine that they are of."""

import dataclasses
import json

HEAD = ("| check | found | rule |  |", "| --- | --- | --- | --- |")


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
    def line(self) -> str:
        """Of the table in Markdown below `HEAD`."""
        verdict = {True: "kept", False: "NOT KEPT", None: ""}[self.is_kept]
        cells = (self.check, self.found, self.rule, verdict)
        return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def skipped(check: str, why: str) -> Finding:
    """Of a check that cannot be done here."""
    return Finding(check, f"skipped: {why}")


@dataclasses.dataclass(frozen=True)
class Run:
    """Findings, and facts of the machine by name."""

    machine: dict[str, str]
    findings: list[Finding]

    def lines(self) -> list[str]:
        """A table in Markdown, and the machine below."""
        facts = ", ".join(f"{name}: {value}" for name, value in self.machine.items())
        return [*HEAD, *(finding.line for finding in self.findings), "", facts]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Run":
        fields = json.loads(text)
        return cls(fields["machine"], [Finding(**finding) for finding in fields["findings"]])
