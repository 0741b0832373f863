"""What the user can ask of `verify`."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from kseg.segment.partition.topic_identity import NOBODY_SAYS, IdentityByPath, TopicIdentity

if TYPE_CHECKING:
    from kseg.segment.scanning.trust import Claim

LEVELS = ("quick", "default", "deep")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """level: one of LEVELS. now_ms: the wall clock for rules that need one. jobs: how many processes may share one
    log. identities: what the metadata log says about each partition directory, None when nobody has asked it. claims: what others have found sound, so that it need not be looked at again."""

    level: str = "default"
    now_ms: int
    drop_cache: bool = False
    jobs: int = 1
    identities: IdentityByPath | None = None
    claims: "tuple[Claim, ...]" = ()

    def narrowed_to(self, paths: Iterable[str]) -> Self:
        """The options for some of the targets, without what is known about others."""
        if self.identities is None:
            return self
        return replace(
            self, identities={path: self.identities[path] for path in paths if path in self.identities}
        )

    def identity_of(self, partition_path: str) -> TopicIdentity:
        """What the metadata log says about a partition directory; nothing when nobody has asked."""
        return (self.identities or {}).get(partition_path, NOBODY_SAYS)
