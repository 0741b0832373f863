"""What the user can ask of `verify`."""

from dataclasses import dataclass

LEVELS = ("quick", "default", "deep")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """level: one of LEVELS. now_ms: the wall clock for rules that need one. index_interval_bytes: only for
    judging how dense an index may be."""

    level: str = "default"
    now_ms: int
    drop_cache: bool = False
