"""The steps for a metadata log that a broker cannot load, and for one that is in none of the given data directories.

A node loads the newest snapshot of `__cluster_metadata-0`. If that is damaged it fails, or starts with less than it had; it does not try an
older one (Kafka: KafkaRaftClient, observed with 4.3.1). With the damaged snapshot moved away, it starts from the previous one or from the
log, provided these reach back far enough; otherwise the log has to come from another node. If a KRaft node's data directories contain no
metadata log, either it is in another directory of the node, or it is lost. What a 4.3.1 node refuses in a sound log can only be changed
through a version that accepts it.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING

from kseg.cli.doctor.next_step import NO_PARTIAL_COPIES, NextStep, copy_command, likewise, move_out
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.internal_topics.metadata.metadata_log_files import log_files
from kseg.recovery.broker_start.log_dir_start import contains_only
from kseg.recovery.broker_start.metadata_start import snapshot_fault
from kseg.segment.counted import listed, shown_of
from kseg.segment.diagnosis import FutureTimestamps, MetadataGap, ReissuedProducerIds
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import is_directory
from kseg.segment.findings import ERROR, Finding
from kseg.segment.layout import LOG_SUFFIX
from kseg.segment.partition.log_dir_state import KRAFT_VERSION, read_log_dir_state
from kseg.segment.partition.names import (
    COPYING_SUFFIX,
    METADATA_DIRECTORY,
    NAME_BY_ROLE,
    Role,
    parse_file_name,
)
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shortened, shown_path, visible
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.refused_configs import RefusedConfig
    from kseg.internal_topics.metadata.refused_features import RefusedFeature

_LISTED = 5  # properties with a step of their own
_WITH_SNAPSHOT = "with metadata.log.max.record.bytes.between.snapshots=1"
_SNAPSHOT_WRITTEN = "wait until each has a newer .checkpoint file in __cluster_metadata-0"
# also under the name that `move_command` gives it
_FIND = rf"find / -type d \( -name '{METADATA_DIRECTORY}*' -o -name '*-{METADATA_DIRECTORY}*' \) -not -empty {NO_PARTIAL_COPIES}"
_OF_THE_PREVIEW = "@metadata-0"
_FORMATTED = {NAME_BY_ROLE[Role.META_PROPERTIES], NAME_BY_ROLE[Role.BOOTSTRAP_SNAPSHOT]}


@dataclass(slots=True)
class MetadataLogs:
    """is_read: whether a metadata log was read; is_outdated: whether it is older than the partitions. has_dynamic_quorum: whether the
    voters are in it instead of controller.quorum.voters. is_lacking: whether none of the directories has one. renamed: the only directory
    that has one under another name. damaged_snapshots: files. gapped: directories of logs that a repair would make worse. reissued_ids:
    logs whose controllers allocate producer ids again. refused_features, refused_configs: entries that a 4.3.1 node refuses; the latter by
    topic and name. latest_ms: the latest time that is known from one, of its last record or in the future."""

    latest_ms: int = -1
    is_read: bool = False
    is_outdated: bool = False
    has_dynamic_quorum: bool = False
    is_lacking: bool = False
    renamed: str | None = None
    damaged_snapshots: list[str] = field(default_factory=list)
    gapped: dict[str, None] = field(default_factory=dict)
    reissued_ids: list[tuple[str, ReissuedProducerIds]] = field(default_factory=list)
    refused_features: "dict[str, RefusedFeature]" = field(default_factory=dict)
    refused_configs: "dict[tuple[str, str], RefusedConfig]" = field(default_factory=dict)

    def takes(self, finding: Finding) -> bool:
        path, diagnosis = finding.path, finding.diagnosis
        if isinstance(diagnosis, FutureTimestamps) and _is_in_metadata_log(path):
            self.latest_ms = max(self.latest_ms, diagnosis.timestamp_ms)
        if finding.id == "metadata-log-outdated":
            self.is_outdated = True
            return True
        if isinstance(diagnosis, ReissuedProducerIds):
            self.reissued_ids.append((path, diagnosis))
            return True
        if isinstance(diagnosis, MetadataGap) and not diagnosis.is_loadable:
            self.gapped[diagnosis.directory] = None
        if finding.severity != ERROR:
            return False
        if path not in self.damaged_snapshots and is_metadata_snapshot(path) and snapshot_fault(path):
            self.damaged_snapshots.append(path)
        return path in self.damaged_snapshots

    @property
    def come_before_start(self) -> bool:
        return bool(self.damaged_snapshots or self.gapped or self.reissued_ids)


def _is_in_metadata_log(path: str) -> bool:
    return os.path.basename(os.path.dirname(path)) == METADATA_DIRECTORY


def is_metadata_snapshot(path: str) -> bool:
    """Whether a path is a KRaft snapshot in the directory of the metadata log."""
    name = parse_file_name(os.path.basename(path))
    if not _is_in_metadata_log(path):
        return False
    return name.role is Role.METADATA_SNAPSHOT and name.is_live


def snapshot_steps(damaged: Sequence[str]) -> Iterator[NextStep]:
    """One step for each damaged snapshot, or for the whole directory if the log does not reach back far enough without it."""
    for directory in dict.fromkeys(map(os.path.dirname, damaged)):
        here = [path for path in damaged if os.path.dirname(path) == directory]
        if _reaches_back(directory, here):
            for path in here:
                yield move_out(
                    "A broker tries no snapshot of the metadata log other than "
                    f"{shown_path(os.path.basename(path))}, which is damaged, and no repair can restore "
                    "it. The log reaches back far enough without it: with the broker stopped, move it "
                    "out of the data directory.",
                    path,
                )
        else:
            yield move_out(
                "A broker tries no snapshot of the metadata log other than the newest one, which is "
                "damaged, and without it the log does not reach back far enough. With the broker "
                "stopped, either replace __cluster_metadata-0 with that of another controller or broker, "
                "or, only if a majority of the other controllers is running, move it out of the data "
                "directory so that this node fetches it.",
                directory,
            )


def gap_steps(directories: Iterable[str]) -> Iterator[NextStep]:
    """The steps for metadata logs with a gap. A broker truncates such a log at the gap, and partitions created after it become stray. If
    only the damaged batches were removed, it would fail on the first record that refers to a lost one."""
    for directory in directories:
        yield move_out(
            "The metadata log has lost records that no snapshot contains, and no repair can restore "
            "them (`kseg recover` leaves it as it is, because a broker would fail on the remaining "
            "records, or never fetch the lost ones from other controllers). With the broker stopped, "
            "move it out of the data directory. Do not start a node that is the only controller: it "
            "would set everything aside as stray.",
            directory,
        )
        yield copied_log(os.path.dirname(directory))


def copied_log(log_dir: str, is_due: bool = True) -> NextStep:
    """The step that copies the log of another node, including its quorum-state: with another node's quorum-state, a node still elects or
    finds the leader, in another epoch."""
    return NextStep(
        f"Copy {METADATA_DIRECTORY} here from another controller or broker, or from a backup (PATH), and "
        "examine the node again before it starts. While a majority of the other controllers is running, "
        "the node can also be started without it, and fetches it; but if one of its data directories was "
        "replaced or formatted, it may lead partitions with empty logs, and kseg can name these only with "
        "the metadata log.",
        copy_command(f"PATH/{METADATA_DIRECTORY}", os.path.join(log_dir, METADATA_DIRECTORY), how="cp -r"),
        is_due,
    )


def _reaches_back(directory: str, damaged: Sequence[str]) -> bool:
    names = [parse_file_name(name) for name in places.listdir(directory)]
    files = log_files(directory, names, is_alone=False, with_deleted=False)
    if not files.segments:
        return False
    start = files.segments[0][0]
    return start == 0 or any(
        snapshot.end_offset >= start for snapshot in files.snapshots if snapshot.path not in damaged
    )


def lacks_metadata_log(log_dirs: Sequence[str]) -> bool:
    """Whether these are data directories of a KRaft node, and none of them has the metadata log."""
    return any(read_log_dir_state(log_dir).meta_version == KRAFT_VERSION for log_dir in log_dirs) and not any(
        _may_be_directory(os.path.join(log_dir, METADATA_DIRECTORY)) for log_dir in log_dirs
    )


def are_as_formatted(log_dirs: Sequence[str]) -> bool:
    """Whether the directories contain only what `kafka-storage.sh format` writes: a broker that has run leaves its .lock there, and a
    controller its metadata log."""
    return all(contains_only(log_dir, _FORMATTED) for log_dir in log_dirs)


def _may_be_directory(path: str) -> bool:
    try:
        return bool(is_directory(path))
    except UnreadableInput:
        return True


def renamed_metadata_log(log_dirs: Sequence[str]) -> str | None:
    """The metadata log under another name, where no data directory has it under its own: no other directory has a quorum-state."""
    if any(places.lexists(os.path.join(log_dir, METADATA_DIRECTORY)) for log_dir in log_dirs):
        return None
    found = []
    for log_dir in log_dirs:
        with suppress(OSError), places.scandir(log_dir) as entries:
            found += [
                entry.path
                for entry in entries
                if not entry.name.endswith(COPYING_SUFFIX) and entry.is_dir() and _is_metadata_log(entry.path)
            ]
    return found[0] if len(found) == 1 else None


def _is_metadata_log(directory: str) -> bool:
    names = set(places.listdir(directory))
    return NAME_BY_ROLE[Role.QUORUM_STATE] in names and any(name.endswith(LOG_SUFFIX) for name in names)


def name_metadata_log(directory: str) -> NextStep:
    """directory: the metadata log under another name."""
    if os.path.basename(directory) == _OF_THE_PREVIEW:
        log_dir = os.path.dirname(directory)
        return NextStep(
            f"{_OF_THE_PREVIEW} is the metadata log of Kafka 2.8, whose preview of KRaft no later version "
            "continues: a 4.3.1 node that is also a controller begins with an empty one and sets every "
            "partition aside as stray. Start 2.8 here, or write the records to files for a new cluster.",
            f"kseg export --to json --output DIR {shell_quoted(log_dir)}",
        )
    own = os.path.join(os.path.dirname(directory), METADATA_DIRECTORY)
    return NextStep(
        f"According to its quorum-state, {shown_path(os.path.basename(directory))} is the metadata log, which no "
        "broker finds under this name: a node that is also a controller begins with an empty one and "
        "sets every partition aside as stray. Give it its name back.",
        f"mv -T {shell_quoted(directory)} {shell_quoted(own)}",
    )


def find_newer_metadata_log() -> NextStep:
    return NextStep(
        "The metadata log is older than the partitions, and a node that starts with it sets aside what was created since: put the newer one "
        "back before any node starts, from its disk, a later backup, or another node of the cluster (`kseg metadata` shows how far a copy "
        "reaches).",
        _FIND,
    )


def find_metadata_log(
    unread: Sequence[str] = (), again: str = "", *, is_as_formatted: bool = False
) -> NextStep:
    """Not due: most likely the metadata log is in a data directory of the node that was not given. unread: paths that were given and cannot
    be read. again: the command that examines them once more. is_as_formatted: see `are_as_formatted`."""
    if unread:
        return NextStep(
            f"{shown_path(listed(unread, _LISTED))} could not be read, and may contain {METADATA_DIRECTORY}, which tells which partitions belong "
            "here. Examine all of them again when it can be read, before a broker starts.",
            again,
        )
    new = (
        "These directories contain only what formatting writes. If no node has run on them yet, start it: nothing is missing. "
        "If one has (a controller leaves nothing but its metadata log), or if they replace others: "
    )
    return NextStep(
        f"{new if is_as_formatted else ''}{METADATA_DIRECTORY} tells which partitions belong here, but none of these directories "
        "contains it: add the data directory that does (metadata.log.dir, else the first of log.dirs). "
        "If it is lost, restore it before a broker starts: a node that is also a controller would begin "
        "with an empty one and set every partition aside as stray; one that is only a broker fetches it "
        "from the controllers.",
        _FIND,
        is_due=False,
    )


def set_features(metadata: MetadataLogs, server: str) -> Iterator[NextStep]:
    """A feature level can only be changed by a version of Kafka that supports it, and is replayed until a snapshot
    follows the change."""
    for each in metadata.refused_features.values():
        if each.is_past:
            yield NextStep(
                f"The metadata log still sets feature {shown_path(each.name)} to level {each.level}, "
                "which 4.3.1 does not support, before it sets a later one, and a 4.3.1 node fails on that "
                f"record. Start the version that ran here last on all nodes {_WITH_SNAPSHOT}, "
                f"{_SNAPSHOT_WRITTEN}, and then start 4.3.1.",
                f"kafka-features.sh --bootstrap-server {server} describe",
            )
        elif each.is_of_older:
            yield NextStep(
                "The metadata.version of the cluster is older than 3.3-IV3, and a 4.3.1 node does not "
                f"start with it. Start a version from 3.3 to 3.9 on all nodes {_WITH_SNAPSHOT}, raise the "
                f"metadata.version, {_SNAPSHOT_WRITTEN}, and then start 4.3.1.",
                f"kafka-features.sh --bootstrap-server {server} upgrade --metadata 3.3",
            )
        else:
            yield NextStep(
                f"Feature {shown_path(each.name)} has level {each.level}, which 4.3.1 does not support: "
                "a newer version wrote it. Start the version that ran here last.",
                f"kafka-features.sh --bootstrap-server {server} describe",
            )


def remove_configs(metadata: MetadataLogs, server: str, request: Request) -> Iterator[NextStep]:
    """No tool changes a metadata log offline, so the property has to be removed through a version that starts with it."""
    refused = list(metadata.refused_configs.values())
    shown = shown_of(len(refused), _LISTED)
    for each in refused[:shown]:
        yield NextStep(
            f"{each.name}={visible(shortened(each.value))} of topic {shown_path(each.topic)} prevents a "
            "4.3.1 node from starting; older versions allowed it. Start the version that ran here last, "
            "remove or correct the property, and then start 4.3.1.",
            f"kafka-configs.sh --bootstrap-server {server} --alter --entity-type topics "
            f"--entity-name {shell_quoted(each.topic)} --delete-config {each.name}",
        )
    yield from likewise(len(refused) - shown, "property", command_line("metadata", {}, request))
