"""What a storm did and saw; printed, and kept in docs/reliability.md."""

from dataclasses import dataclass, field


@dataclass
class Tally:
    """Numbers of it; `may_be_lost` items were taken by consumers that died before they could tell."""

    seed: int
    seconds: float = 0
    processes: int = 0
    events: dict[str, int] = field(default_factory=dict)
    musters: int = 0
    kept_checked: int = 0  # items of dead keepers
    consumed: int = 0
    may_be_lost: int = 0
    checkpoints: int = 0  # that were saved and read by processes of the storm
    restored: int = 0  # items of the checkpoint that was taken beside all of them
    recoveries: int = 0  # holders that died in the lock

    def __str__(self) -> str:
        events = ", ".join(f"{name}: {count}" for name, count in self.events.items())
        return (
            f"seed {self.seed}, {self.seconds:.0f} s, {self.processes} processes; {events}; {self.musters} musters; "
            f"{self.kept_checked} items of the dead compared, {self.consumed} consumed once, "
            f"{self.may_be_lost} in doubt; {self.checkpoints} checkpoints, {self.restored} items restored from one; "
            f"{self.recoveries} deaths in the lock"
        )
