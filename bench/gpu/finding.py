"""Finding: the result of one check of a GPU. Run: all findings, and facts about the machine."""

import dataclasses
import json

HEAD = ("| check | found | rule |  |", "| --- | --- | --- | --- |")


@dataclasses.dataclass(frozen=True)
class Finding:
    """A row of the report.

    Attributes:
        check: what was done.
        found: the result, or why the check was not done.
        rule: what the result must be; "" if there is no rule.
        is_kept: whether the result follows the rule; None if there is no rule, or if the check was not done.
    """

    check: str
    found: str
    rule: str = ""
    is_kept: bool | None = None

    @property
    def line(self) -> str:
        """The line in the Markdown table below `HEAD`."""
        verdict = {True: "kept", False: "NOT KEPT", None: ""}[self.is_kept]
        cells = (self.check, self.found, self.rule, verdict)
        return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def skipped(check: str, why: str) -> Finding:
    """The finding of a check that cannot be done here."""
    return Finding(check, f"skipped: {why}")


@dataclasses.dataclass(frozen=True)
class Run:
    """Findings, and facts about the machine by name."""

    machine: dict[str, str]
    findings: list[Finding]

    def lines(self) -> list[str]:
        """A Markdown table of the findings, and the facts below it."""
        facts = ", ".join(f"{name}: {value}" for name, value in self.machine.items())
        return [*HEAD, *(finding.line for finding in self.findings), "", facts]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Run":
        fields = json.loads(text)
        return cls(fields["machine"], [Finding(**finding) for finding in fields["findings"]])
