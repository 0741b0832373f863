"""The clean-shutdown marker during a repair: when to remove it, when to restore it, when to write a new one.

A broker that finds the marker trusts every log and reads none of them. It also sends the broker epoch in the marker to the
controller, as proof that this broker has lost nothing since (KIP-966). So

    while partitions change   it is removed, so that a broker that starts in the meantime recovers them
    after a repair            it is restored if it is still true: the repaired partitions are valid, and no other partition of
                              the data directory contradicts it (`verify.clean_stop`). Without it, a broker would recover all
                              logs, and truncate those at whose damage a load behind the marker does not look
    otherwise                 it stays removed, and the broker recovers all segments above the recovery point
    --mark-clean              writes one, if every partition of the data directory was checked and is valid

The epoch of the existing one is kept, unless a log lost bytes: then the marker is empty, as up to Kafka 3.6, and the broker registers as
after an unclean shutdown. -1 does not express that: of several data directories, a -1 is skipped when the next one has an epoch
(LogManager.readBrokerEpochFromCleanShutdownFiles). It is also empty when a replica that was here is missing: the broker creates it again,
empty, with and without a marker, and a controller that trusts the epoch would keep it in the ISR.

Nothing else writes a marker, and a run that changes nothing does not touch it.

`--mark-clean` also creates the index files of an empty active segment. A broker creates them when it first appends to the segment or reads
it, or when it stops (Kafka: LazyIndex). If it is killed right after it rolled the log, they are missing. A load without the marker creates
them; a load with it, which expects them there, logs the error "Could not find offset index file" and recovers the segment.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kseg.recovery.policy import Repair
from kseg.recovery.repair.aligned_checkpoints import PartitionOutcome
from kseg.recovery.verify.clean_stop import marker_contradictions
from kseg.segment import unreadable
from kseg.segment.errors import UnreadableInput, cannot_read
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.names import (
    NAME_BY_ROLE,
    SUFFIX_BY_ROLE,
    PartitionName,
    Role,
    parse_file_name,
    segment_file_name,
)
from kseg.segment.values import dataclass

MARKER = NAME_BY_ROLE[Role.CLEAN_SHUTDOWN]
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Marker:
    """The marker of a data directory before the run.

    path: its current location. losses: names of partitions that lost bytes in a run that was killed after it removed the marker.
    missing: directory names of replicas that were here and are gone.
    """

    path: str
    losses: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def content(self) -> bytes | None:
        """None when it cannot be read. Read on first use: reading changes the access time."""
        return self._read()[0]

    @property
    def problem(self) -> str:
        """Why it cannot be read; empty if it can."""
        return self._read()[1]

    def _read(self) -> tuple[bytes | None, str]:
        try:
            content = read_small(self.path)
        except UnreadableInput as error:
            return None, str(error)
        if unreadable.bytes_of(self.path):
            return None, "it cannot be read"  # zeros carry no epoch
        return content, ""


def has_marker(log_dir: str) -> bool:
    """Whether the data directory has a clean-shutdown marker. Raises UnreadableInput when that cannot be determined."""
    path = os.path.join(log_dir, MARKER)
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise cannot_read(path, error) from error
    return True


def marker_of(log_dir: str) -> Marker | None:
    """The marker of the data directory, None when it has none."""
    return Marker(os.path.join(log_dir, MARKER)) if has_marker(log_dir) else None


def with_missing_replicas(marker: Marker | None, missing: Iterable[Finding]) -> Marker | None:
    """The marker of a data directory in which replicas are missing. A replica that was never created is no loss."""
    names = [os.path.basename(finding.path) for finding in missing if finding.id != "replica-unmade"]
    return None if marker is None else replace(marker, missing=tuple(names))


def content_after(marker: Marker | None, outcomes: Iterable[PartitionOutcome]) -> bytes:
    """The content of the marker after the run, if there is to be one."""
    if marker is None or without_epoch(marker, outcomes):
        return b""
    return marker.content or b""


def without_epoch(marker: Marker, outcomes: Iterable[PartitionOutcome]) -> list[str]:
    """Why the marker must not have a broker epoch once the partitions are as in `outcomes`, one clause each; empty if it may."""
    lost = [f"the log of {name} loses bytes" for name in losses_of(marker, outcomes)]
    return [*lost, *(f"{name} is missing" for name in marker.missing)]


def losses_of(marker: Marker, outcomes: Iterable[PartitionOutcome]) -> list[str]:
    """Names of the partitions from which bytes were or would be removed."""
    lost = [outcome.name.text for outcome in outcomes if outcome.loses_bytes]
    return list(dict.fromkeys((*marker.losses, *lost)))


def marker_objections(
    log_dir: str, outcomes: Sequence[PartitionOutcome], others: Iterable[tuple[str, PartitionName]]
) -> list[str]:
    """Why the marker is not true once the partitions are as in `outcomes`, one clause each; empty if it stays true.

    outcomes: without those of partitions that the run leaves as they are. others: (directory name, name) of these, and of those that were
    not checked: what is wrong with them does not count unless it contradicts the marker, since a broker loads them behind it as before,
    and possibly not without it.
    """
    reasons = [f"{outcome.name.text} {outcome.doubt}" for outcome in outcomes if not outcome.is_as_loaded]
    reasons += [
        lie
        for directory, name in others
        for lie in marker_contradictions(os.path.join(log_dir, directory), name)
    ]
    return reasons


def listed(words: Sequence[str]) -> str:
    """The first few of many clauses, in one sentence."""
    return "; ".join(_first(words))


def _first(words: Sequence[str]) -> Iterator[str]:
    yield from words[:_SHOWN]
    if len(words) > _SHOWN:
        yield f"and {len(words) - _SHOWN} more"


_INDEX_ROLES = (Role.OFFSET_INDEX, Role.TIME_INDEX)


def with_indexes_of_active_segment(repair: Repair) -> Repair:
    """Add the missing index files of the last segment, if that has no records; the time index only if another segment has one, or there is
    none."""
    names = [name for name in map(parse_file_name, repair.image) if name.is_live]
    bases = [name.base_offset for name in names if name.role is Role.LOG and name.base_offset is not None]
    if repair.load_failure is not None or not bases:
        return repair
    active = max(bases)
    if repair.image.size_bytes(segment_file_name(active, SUFFIX_BY_ROLE[Role.LOG])):
        return repair  # the indexes of a segment with records are rebuilt from its records
    has_times = len(bases) == 1 or any(name.role is Role.TIME_INDEX for name in names)
    wanted = _INDEX_ROLES if has_times else (Role.OFFSET_INDEX,)
    created = [segment_file_name(active, SUFFIX_BY_ROLE[role]) for role in wanted]
    created = [name for name in created if name not in repair.image]
    if not created:
        return repair
    image = repair.image.copy()
    for name in created:
        image.write(name, b"")
    why = dict.fromkeys(created, "created as a clean shutdown does: the active segment is empty")
    return replace(repair, image=image, why={**repair.why, **why})
