"""What the user can ask of `verify`."""

from dataclasses import dataclass

LEVELS = ("quick", "default", "deep")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """level: one of LEVELS. now_ms: the wall clock for rules that need one. jobs: how many processes may share one
    log."""

    level: str = "default"
    now_ms: int
    drop_cache: bool = False
    jobs: int = 1
