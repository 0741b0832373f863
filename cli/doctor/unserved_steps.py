"""The steps for directories that a broker does not serve as the partitions that they contain: it cannot parse their names, or their topic
ids are not those of the topics with these names.

No file shows whether a directory belongs to the current topic of its name or to a deleted one, so the user has to decide.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace

from kseg.cli.doctor.next_step import NextStep, elect_command, likewise, move_out
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.internal_topics.metadata.replica_directories import has_segment
from kseg.segment.counted import listed, shown_of
from kseg.segment.diagnosis import WrongTopicId
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.names import COPYING_SUFFIX, LOST_AND_FOUND, contains_partition_name
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shown_path
from kseg.segment.values import dataclass

_LISTED = 5  # directories with a step of their own


@dataclass(slots=True)
class UnservedDirectories:
    """foreign: those with names that a broker cannot parse. of_other_topics: those with the topic id of a topic of another name, which no
    broker serves. of_unknown_topics: those that become stray, whose topic is in no metadata log. wrong_ids: partition directories with
    another topic id than the topic of their name, whose id is the value. mounted: those that are mount points."""

    request: Request
    foreign: list[str] = field(default_factory=list)
    of_other_topics: list[str] = field(default_factory=list)
    of_unknown_topics: list[str] = field(default_factory=list)
    wrong_ids: dict[str, str] = field(default_factory=dict)
    mounted: list[str] = field(default_factory=list)

    def takes(self, finding: Finding) -> bool:
        if finding.id == "bad-directory-name":
            self.foreign.append(finding.path)
        elif finding.id == "topic-id-conflict" and finding.diagnosis is None and places.isdir(finding.path):
            self.of_other_topics.append(finding.path)
        elif finding.id == "becomes-stray" and finding.diagnosis is None:
            self.of_unknown_topics.append(finding.path)
        elif finding.id == "mounted-directory":
            self.mounted.append(finding.path)
        elif isinstance(finding.diagnosis, WrongTopicId):
            self.wrong_ids[finding.path] = finding.diagnosis.topic_id
        else:
            return False
        return True

    @property
    def are_found(self) -> bool:
        return bool(self.foreign or self.of_other_topics or self.of_unknown_topics or self.wrong_ids)


def foreign_steps(
    unserved: UnservedDirectories, renamed: Collection[str], *, has_metadata: bool
) -> Iterator[NextStep]:
    """A broker takes every directory for a partition, and fails on a name that is not a partition's. renamed: directories that another step
    gives their names back."""
    foreign = [path for path in unserved.foreign if path not in renamed]
    shown = shown_of(len(foreign), _LISTED)
    former_names = {} if has_metadata else _former_names(foreign)
    for path in foreign[:shown]:
        former_name = former_names.get(path)
        if former_name is not None:
            yield NextStep(
                f"A broker does not start with this name. {shown_path(former_name)} is missing here, "
                "although a checkpoint has an offset for it: rename the directory back, or, if it is not "
                "that partition, move it out of the data directory.",
                f"mv -T {shell_quoted(path)} {shell_quoted(os.path.join(os.path.dirname(path), former_name))}",
            )
        elif path.endswith(COPYING_SUFFIX):
            yield NextStep(
                "Remove this unfinished copy, which the step of another `kseg doctor` began: a broker does not start with it.",
                f"rm -r {shell_quoted(path)}",
            )
        elif os.path.basename(path) == LOST_AND_FOUND:
            yield _remove_lost_and_found(path)
        else:
            yield move_out(
                "Move it out of the data directory: a broker does not start with it.",
                path,
            )
    copies = [path for path in unserved.of_other_topics if path not in renamed]
    more = len(foreign) - shown
    shown = shown_of(len(copies), _LISTED)
    for path in copies[:shown]:
        yield move_out(
            f"Move {shown_path(os.path.basename(path))} out of the data directory: by its topic id it belongs to "
            "another topic, and a broker serves nothing from it.",
            path,
        )
    command = command_line("list", {"--verbose": True}, unserved.request)
    yield from likewise(more + len(copies) - shown, "directory", command)


def _remove_lost_and_found(path: str) -> NextStep:
    again = "The next fsck creates it again, so point log.dirs to a directory below the mount point."
    is_empty = False
    with suppress(OSError):  # lost+found belongs to root
        is_empty = not places.listdir(path)
    if is_empty:
        return NextStep(f"Remove it: a broker does not start with it. {again}", f"rmdir {shell_quoted(path)}")
    return move_out(
        f"Move it out of the data directory: a broker does not start with it. What fsck put there may be files of partitions. {again}",
        path,
    )


def _former_names(foreign: Sequence[str]) -> dict[str, str]:
    """Directories that were renamed from the name of a partition, with that name. Without a metadata log only the checkpoints show which
    partitions a data directory had: a name in them is the former one if it is part of the new name, and no other directory has or could
    have had it."""
    found: dict[str, str] = {}
    for path in foreign:
        if path.endswith(COPYING_SUFFIX):
            continue
        log_dir, name = os.path.split(path)
        checkpoints = read_log_dir_state(log_dir).checkpoints.values()
        noted = {f"{topic}-{number}" for offsets in checkpoints for topic, number in offsets}
        named = [each for each in noted if contains_partition_name(name, each)]
        former = [each for each in named if not places.lexists(os.path.join(log_dir, each))]
        if len(former) == 1 and has_segment(path):
            found[path] = former[0]
    count = Counter((os.path.dirname(path), name) for path, name in found.items())
    return {path: name for path, name in found.items() if count[os.path.dirname(path), name] == 1}


def explain_strays(unserved: UnservedDirectories) -> Iterator[NextStep]:
    """Partitions whose topic the metadata log does not have; no repair makes a broker serve them."""
    strays = unserved.of_unknown_topics
    if not strays:
        return
    names = [own_partition_name(path) for path in strays]
    topics = tuple(dict.fromkeys(name.topic for name in names if name is not None))
    it, has = ("it", "its topic") if len(strays) == 1 else ("them", "their topics")
    yield NextStep(
        f"A broker sets {shown_path(listed([*map(os.path.basename, strays)], _LISTED))} aside as stray, because the metadata log does not "
        f"have {has} on this node: see whether the topic was deleted or moved, or the metadata log is an older one or another cluster's "
        f"(then put the right one back first). If the records are needed, copy {it} away before a broker starts.",
        command_line("metadata", {"--history": True}, replace(unserved.request, topics=topics)),
    )


def give_ids(unserved: UnservedDirectories, renamed: Collection[str]) -> Iterator[NextStep]:
    """renamed: as above; the topics of these are known."""
    wrong_ids = {path: topic_id for path, topic_id in unserved.wrong_ids.items() if path not in renamed}
    shown = shown_of(len(wrong_ids), _LISTED)
    for path, topic_id in list(wrong_ids.items())[:shown]:
        yield NextStep(
            f"A broker does not serve {shown_path(os.path.basename(path))}, because its topic id is not "
            "that of the topic. If the partition belongs to this topic nevertheless (and not to a "
            "deleted one, or to another cluster), give it the id; `kseg undo` reverts that.",
            f"kseg recover --apply --topic-id {topic_id} {shell_quoted(path)}",
        )
    command = command_line("verify", {"--verbose": True}, unserved.request)
    yield from likewise(len(wrong_ids) - shown, "partition", command, "list the command for each")


def elect_leaders(names: Sequence[str], server: str) -> Iterator[NextStep]:
    """The step for partitions that have no leader although their broker runs."""
    # several nodes may lead one
    names = [*dict.fromkeys(names)]
    if names:
        them, they_are, they_have = (
            ("it", "it is", "it has") if len(names) == 1 else ("them", "they are", "they have")
        )
        yield NextStep(
            f"Once the broker runs, elect a leader for {shown_path(listed(names, _LISTED))}. The metadata log assigns {them} to a log dir that its node no "
            f"longer has. A broker that starts reports where {they_are} now, but that leads to no election: {they_have} no leader until another broker "
            "starts or leaders are balanced (every five minutes, with auto.leader.rebalance.enable).",
            elect_command(server),
            is_due=False,
        )
