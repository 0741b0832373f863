"""The damage in partitions, and what each policy of `recover` would lose by its repair.

1. Count the errors of each partition while the verification runs.
2. Plan the repair of those that have any; nothing is changed.
3. Note what the steps of `kseg doctor` depend on: partitions that no repair makes sound, and where the logs end after a repair.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING

from kseg.cli.doctor.doctor_rows import damage_row
from kseg.cli.doctor.obstacle_steps import linked_files
from kseg.cli.doctor.situation import Situation
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.diagnosis import (
    LogStartBeyondEnd,
    MissingReplica,
    ReissuedProducerIds,
    RemoteAhead,
    ReplicaBehind,
)
from kseg.segment.findings import ERROR, Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import parse_partition_directory
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.internal_topics.groups.group_results import OffsetOfGroup, ShareStateOfGroup
    from kseg.recovery.repair.options import RecoverOptions
    from kseg.recovery.repair.rows import RecoverResult

# runs work on targets, here or on a cluster (`cli.run.workers`)
Over = Callable[..., Iterator[Event]]


@dataclass(slots=True)
class _Damage:
    """errors: the number of errors in a partition, by finding id."""

    target: PartitionTarget
    errors: dict[str, int] = field(default_factory=dict)


class DamagedPartitions:
    """The partitions with errors, by path. Notes in the situation what its steps depend on."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._damage: dict[str, _Damage] = {}
        self._repaired_ends: dict[tuple[str, int], list[range]] = {}  # log start to log end after `recover`

    @property
    def targets(self) -> list[PartitionTarget]:
        return [each.target for each in self._damage.values()]

    def note(self, finding: Finding, partitions: Mapping[str, PartitionTarget]) -> None:
        """Count an error. partitions: all that are examined, by path."""
        about = finding.diagnosis
        if finding.severity != ERROR or isinstance(
            about, MissingReplica | ReplicaBehind | ReissuedProducerIds | RemoteAhead
        ):
            return
        told = about.directory if isinstance(about, LogStartBeyondEnd) else ""
        for path in (finding.path, os.path.dirname(finding.path), told):
            if path in partitions:
                errors = self._damage.setdefault(path, _Damage(partitions[path])).errors
                errors[finding.id] = errors.get(finding.id, 0) + 1
                return

    def costs(self, over: Over, options: "RecoverOptions") -> Iterator[Row]:
        """A row for each partition. options: of the repair that is planned."""
        from kseg.recovery.repair.recover import recover
        from kseg.recovery.repair.rows import RecoverResult

        repairs: dict[str, RecoverResult] = {}
        failures: dict[str, str] = {}
        ends_lost = Counter[str]()
        for event in over(recover, self.targets, options):
            if isinstance(event, Failure):
                failures[event.path] = event.sentence
            elif isinstance(event, Row) and isinstance(event.result, RecoverResult):
                repairs[event.result.directory] = event.result
            elif isinstance(event, Finding) and event.id == "transaction-end-lost":
                ends_lost[event.path] += 1
        for path, damage in self._damage.items():
            if path in failures:
                with suppress(OSError):
                    self._situation.obstacles.linked += linked_files(path)
            repair, failure = repairs.get(path), failures.get(path)
            if repair is not None:
                self._note_repair(path, damage, repair)
            yield Row(damage_row(path, damage.errors, repair, failure, ends_lost[path], options.repair_bits))

    def _note_repair(self, path: str, damage: _Damage, repair: "RecoverResult") -> None:
        name = own_partition_name(path)
        if name is not None:
            ends = range(repair.log_start_offset, repair.log_end_offset + 1)
            self._repaired_ends.setdefault((name.topic, name.partition), []).append(ends)
        if _stays_unloadable(damage, repair):
            self._situation.repairs.unloadable.append(path)
        elif repair.doubt and _changes_nothing(repair):
            self._situation.repairs.left_damaged[path] = repair.doubt
        elif repair.steps and not repair.doubt:
            self._situation.metadata.gapped.pop(path, None)  # the lost records are restored

    def will_contain(self, found: "OffsetOfGroup") -> bool:
        """Whether a committed offset will be inside the log once `recover` has moved its ends. Resetting such an offset would skip or
        repeat records."""
        return self._contains(found.topic, found.partition, found.offset)

    def leaves_ahead(self, state: "ShareStateOfGroup") -> bool:
        """Whether the state of a share group is ahead of the log, and will be then."""
        end = state.finished_end
        return end is not None and not self._contains(state.topic, state.partition, end)

    def _contains(self, topic: str, partition: int, offset: int) -> bool:
        return any(offset in ends for ends in self._repaired_ends.get((topic, partition), ()))

    def with_repaired_end(self, found: "OffsetOfGroup") -> "OffsetOfGroup":
        """The same committed offset, with the log end that `recover` will leave."""
        ends = self._repaired_ends.get((found.topic, found.partition))
        return found if ends is None else replace(found, log_end_offset=max(each.stop for each in ends) - 1)


def _stays_unloadable(damage: _Damage, repair: "RecoverResult") -> bool:
    """Whether a broker fails to load a log both before and after a repair by policy salvage, as happens where the offending batches have
    valid checksums and are therefore kept."""
    from kseg.recovery.repair.remaining_damage import HARMFUL

    if repair.doubt is None or HARMFUL.keys().isdisjoint(damage.errors):
        return False
    is_metadata_log = parse_partition_directory(repair.partition).is_metadata_log
    return bool(repair.costs["kafka"].get("dies_of")) and not is_metadata_log


def _changes_nothing(repair: "RecoverResult") -> bool:
    """Whether a repair leaves a partition as it is, and no other step concerns it either: those about topic ids and the metadata log
    would."""
    is_metadata_log = parse_partition_directory(repair.partition).is_metadata_log
    return not (repair.steps or repair.misplaced or is_metadata_log)
