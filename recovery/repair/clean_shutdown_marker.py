"""The clean-shutdown marker around a repair: when it goes, when it comes back, who may write one.

A broker that finds the marker believes every log to be as it should be, and reads none of them. It also shows the
controller the broker epoch in it, as the proof that this broker lost nothing since (KIP-966). So

    while partitions change   it is away, and a broker that starts meanwhile checks them
    behind a repair           it comes back byte for byte, with its epoch, while all it says is still true: what was repaired
                              is sound, no byte left a log, and no other log of the data directory gives it the lie
                              (`verify.clean_stop`)
    otherwise                 it stays away, and the broker recovers what it does not know to be synced
    --mark-clean              writes one, when every partition of the data directory was looked at and is sound. The epoch of
                              the one that lay there is kept, unless bytes left a log: then it is empty, as up to Kafka 3.6, and
                              the broker registers as after an unclean stop. -1 is no way to say so: of several data
                              directories, one that says -1 is passed over when the next one has an epoch
                              (LogManager.readBrokerEpochFromCleanShutdownFiles).
Nothing else writes a marker, and where nothing changes it is not touched.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from kseg.recovery.repair.aligned_checkpoints import PartitionOutcome
from kseg.recovery.verify.clean_stop import lies_in
from kseg.segment import unreadable
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import read_small
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionName, Role
from kseg.segment.values import dataclass

MARKER = NAME_BY_ROLE[Role.CLEAN_SHUTDOWN]
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker that lay in a data directory before the run. path: where it lies now. losses: names of partitions that a
    run which was killed behind the marker took bytes out of."""

    path: str
    losses: tuple[str, ...] = ()

    @property
    def content(self) -> bytes | None:
        """None when it cannot be read. Not read before somebody asks: a look leaves its trace in the time of access."""
        with suppress(UnreadableInput):
            content = read_small(self.path)
            return None if unreadable.bytes_of(self.path) else content  # zeros in its place say nothing
        return None


def has_marker(log_dir: str) -> bool:
    """Whether the clean-shutdown marker lies there."""
    return os.path.lexists(os.path.join(log_dir, MARKER))


def marker_of(log_dir: str) -> Marker | None:
    """The marker that lies there, None when there is none."""
    return Marker(os.path.join(log_dir, MARKER)) if has_marker(log_dir) else None


def content_of_new(marker: Marker | None, outcomes: Iterable[PartitionOutcome]) -> bytes:
    """What --mark-clean writes."""
    if marker is None or losses_of(marker, outcomes):
        return b""
    return marker.content or b""


def losses_of(marker: Marker, outcomes: Iterable[PartitionOutcome]) -> list[str]:
    """Names of the partitions that bytes were or would be taken out of."""
    lost = [outcome.name.text for outcome in outcomes if outcome.loses]
    return list(dict.fromkeys((*marker.losses, *lost)))


def why_it_goes(
    log_dir: str,
    marker: Marker,
    outcomes: Sequence[PartitionOutcome],
    others: Iterable[tuple[str, PartitionName]],
) -> list[str]:
    """What makes the marker untrue once the partitions are as in `outcomes`: a clause for each; empty where it stays true.

    others: (directory name, what it says) of the partitions that were not looked at, which it speaks of as well."""
    reasons = [f"{outcome.name.text} {outcome.doubt}" for outcome in outcomes if not outcome.is_as_loaded]
    reasons += [f"bytes leave the log of {name}" for name in losses_of(marker, outcomes)]
    reasons += [lie for directory, name in others for lie in lies_in(os.path.join(log_dir, directory), name)]
    if marker.content is None:
        reasons.append("it cannot be read")
    return reasons


def listed(words: Sequence[str]) -> str:
    """The first of many clauses."""
    return "; ".join(_first(words))


def _first(words: Sequence[str]) -> Iterator[str]:
    yield from words[:_SHOWN]
    if len(words) > _SHOWN:
        yield f"and {len(words) - _SHOWN} more"
