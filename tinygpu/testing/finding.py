"""What one check says of one case."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Wrong, right, or not looked at, and then why.

    fault   what is wrong; "" where nothing is
    absent  what the case has none of, so that there is nothing to look at: "buffers in shared memory"
    blind   why the check cannot look at what is there
    note    what it has found out, beyond that nothing is wrong
    """

    fault: str = ""
    absent: str = ""
    blind: str = ""
    note: str = ""

    @property
    def looked(self) -> bool:
        """Whether the check has seen something: only then the case counts as tried."""
        return bool(self.fault) or not (self.absent or self.blind)

    def __str__(self) -> str:
        if self.absent:
            return f"there is nothing to look at: the case has no {self.absent}"
        return self.fault or (f"not tried: {self.blind}" if self.blind else "nothing is wrong")


RIGHT = Finding()
