"""One step of `kseg doctor`."""

from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class NextStep:
    """why: one sentence. command: as it can be typed. is_due: False if nothing is wrong, only suspicious or untidy."""

    why: str
    command: str
    is_due: bool = True
