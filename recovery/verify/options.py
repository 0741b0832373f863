"""What the user can ask of `verify`."""

from typing import TYPE_CHECKING

from kseg.segment.partition.topic_identity import WithIdentities
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.segment.scanning.prevalidated import ValidatedSpans

LEVELS = ("quick", "default", "deep")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions(WithIdentities):
    """level: one of LEVELS. now_ms: the wall clock for rules that need one. jobs: how many processes may share one log. claims: spans that
    other processes have validated, which need no second check. shapes: also return the shape of each log, for pictures. is_in_use: a broker
    is running on the data directory."""

    level: str = "default"
    now_ms: int
    drop_cache: bool = False
    jobs: int = 1
    claims: "tuple[ValidatedSpans, ...]" = ()
    shapes: bool = False
    is_in_use: bool = False
