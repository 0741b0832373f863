"""The steps for replicas: missing ones, those that lack what another node has, and two directories of the same partition.

No repair can restore records that are in no file here: they come from a directory with another name, from another node, or from a backup.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from kseg.cli.doctor.next_step import (
    ANY_SERVER,
    NextStep,
    copy_command,
    elect_command,
    find_copies_command,
    further_replicas,
    lack_of_room,
    lack_of_room_outside,
    likewise,
    move_command,
    move_out,
    replicas_shown,
)
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.cli.text.replica_words import rename_back
from kseg.internal_topics.broker_directories import end_offset_of
from kseg.internal_topics.metadata.replica_directories import OF_A_MOVE, state_of
from kseg.segment.counted import counted, listed, shown_of
from kseg.segment.diagnosis import (
    Lack,
    MissingReplica,
    MovedLogBehind,
    PartitionTwice,
    RemoteAhead,
    ReplicaBehind,
    ReplicaCopy,
    ReplicaDiverged,
)
from kseg.segment.findings import ERROR, Finding
from kseg.segment.layout import LOG_SUFFIX
from kseg.segment.offset_ranges import OffsetRange
from kseg.segment.partition.names import METADATA_DIRECTORY
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shell_word, shown_path
from kseg.segment.values import dataclass

_LISTED = 5  # replicas with a step of their own
_IF_FOUND = " If the lost directory turns up (in a backup, or on a disk that is not mounted), put that back instead, if its log ends later."


@dataclass(slots=True)
class Replicas:
    """twice: (partition directory, another one of the same partition). behind: (replica that lacks records, the one of another node that
    has them); shorter: likewise, if these records may not be committed. out_of_sync: (replica that leads in an unclean election, what it
    lacks). diverged: (replica that is truncated, from which offset on). moved_behind: (log of a move, the longer log that it replaces),
    also (log, its longer copy). missing: directories of missing replicas; rivals: of those that a broker fetches from others unless its own
    node is elected; set_aside: of some, the directory that has their log under another name; copied: of some, the replica of another node;
    tiered: those with tiered storage; remote: of some of these, the log start and the last offset in remote storage.
    stopped_nodes: the ids of the examined nodes that are not running; nodes_with_others: further nodes that have another replica of any
    missing one."""

    request: Request
    twice: list[tuple[str, str]] = field(default_factory=list)
    behind: list[tuple[str, str]] = field(default_factory=list)
    shorter: list[tuple[str, str]] = field(default_factory=list)
    out_of_sync: list[tuple[str, ReplicaBehind]] = field(default_factory=list)
    diverged: list[tuple[str, int]] = field(default_factory=list)
    moved_behind: list[tuple[str, str]] = field(default_factory=list)
    cut: list[tuple[str, RemoteAhead]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    rivals: list[str] = field(default_factory=list)
    set_aside: dict[str, str] = field(default_factory=dict)
    copied: dict[str, ReplicaCopy] = field(default_factory=dict)
    tiered: dict[str, MissingReplica] = field(default_factory=dict)
    remote: dict[str, OffsetRange] = field(default_factory=dict)
    stopped_nodes: set[int] = field(default_factory=set)
    nodes_with_others: set[int] = field(default_factory=set)

    def takes(self, finding: Finding) -> bool:
        path, diagnosis = finding.path, finding.diagnosis
        if isinstance(diagnosis, ReplicaBehind):
            self._note_behind(path, diagnosis)
        elif isinstance(diagnosis, ReplicaDiverged):
            self.diverged.append((path, diagnosis.offset))
        elif isinstance(diagnosis, MovedLogBehind):
            self.moved_behind.append((path, diagnosis.former))
        elif isinstance(diagnosis, RemoteAhead):
            self.cut.append((path, diagnosis))
        elif isinstance(diagnosis, PartitionTwice):
            self.twice.append((path, diagnosis.other))
        elif isinstance(diagnosis, MissingReplica):
            if finding.severity == ERROR:
                self._note_missing(path, diagnosis)
            elif finding.id == "replica-fetched-anew" and diagnosis.is_rival:
                self.rivals.append(path)
        else:
            return finding.id == "no-segments" and path in self.missing
        return True

    def _note_behind(self, path: str, behind: ReplicaBehind) -> None:
        if behind.lack is Lack.OUT_OF_SYNC:
            self.out_of_sync.append((path, behind))
        else:
            shown = self.behind if behind.lack is Lack.COMMITTED else self.shorter
            shown.append((path, behind.other))

    def _note_missing(self, path: str, missing: MissingReplica) -> None:
        self.missing.append(path)
        self.nodes_with_others.update(set(missing.others) - self.stopped_nodes)
        if missing.set_aside is not None:
            self.set_aside[path] = missing.set_aside
        if missing.copy is not None:
            self.copied[path] = missing.copy
        if missing.is_tiered:
            self.tiered[path] = missing


def replace_behind(replicas: Replicas) -> Iterator[NextStep]:
    """The steps that copy the replica of another node over one that lacks records, or may lack records."""
    yield from _copies(
        replicas.behind, replicas, "lacks records, and its node may lead.", "the one that has them"
    )
    doubt = (
        "ends earlier than the one of another node, and its node may lead. If that node lost power (one that was only killed has lost nothing), "
        "records that were acknowledged may be missing here."
    )
    yield from _copies(replicas.shorter, replicas, doubt, "the longer one")
    if not _has_order(replicas.out_of_sync):
        pairs = [(path, behind.other) for path, behind in replicas.out_of_sync]
        early = "ends earlier than the one of another node, and leads in an unclean election if its node starts first."
        yield from _copies(pairs, replicas, early, "the longer one")


def _copies(
    pairs: Sequence[tuple[str, str]], replicas: Replicas, what: str, copied: str
) -> Iterator[NextStep]:
    """pairs: (replica, the one of another node to put in its place)."""
    shown = replicas_shown(len(pairs), replicas.request)
    for path, other in pairs[:shown]:
        name = shown_path(os.path.basename(path))
        is_here = places.lexists(path)
        move = "move this one out of the data directory, and " if is_here else ""
        why = f"{shown_path(path)} {what}"
        if name == METADATA_DIRECTORY:
            why = f"{shown_path(path)} lacks records of the cluster's metadata."
            if not is_here:
                why += " It belongs in the metadata log dir of its node (metadata.log.dir, else the first of log.dirs)."
        room = lack_of_room(other, path) + (lack_of_room_outside(path) if is_here else "")
        yield NextStep(
            f"{why} Before any of the nodes starts, {move}copy {copied}: its files are valid on every node.{'' if is_here else _IF_FOUND}{room}",
            copy_command(other, path, first=move_command(path) if is_here else ""),
        )
    yield from further_replicas(len(pairs) - shown, "replica", replicas.request)


def _has_order(out_of_sync: Sequence[tuple[str, ReplicaBehind]]) -> bool:
    """Whether the nodes can start in an order in which no unclean election takes place."""
    later = {each.own_node for _, each in out_of_sync}
    return -1 not in later and later.isdisjoint(each.node for _, each in out_of_sync)


def start_in_order(replicas: Replicas, leaderless: Collection[str]) -> Iterator[NextStep]:
    """The step that prevents unclean elections, which no repair can. leaderless: the partitions whose possible leaders have lost their
    log dirs: the first that starts does not lead before an election, or the start of another broker (observed with 4.3.1)."""
    found = replicas.out_of_sync
    if not found or not _has_order(found):
        return
    first, later = (
        sorted({*nodes}) for nodes in zip(*((each.node, each.own_node) for _, each in found), strict=True)
    )
    names = [os.path.basename(os.path.normpath(path)) for path, _ in found]
    topic = names[0].rpartition("-")[0]
    election = "" if {*names}.isdisjoint(leaderless) else f"{elect_command(ANY_SERVER)}; "
    yield NextStep(
        f"Start {_nodes(first)} before {_nodes(later)}, {'elect leaders, ' if election else ''}and wait until {'it leads' if len(first) == 1 else 'they lead'}: "
        f"{counted(len(found), 'replica')} of topics that allow unclean elections would lead with {'a log that ends' if len(found) == 1 else 'logs that end'} earlier. "
        "This tells who leads.",
        f"{election}kafka-topics.sh --bootstrap-server {ANY_SERVER} --describe --topic {shell_word(topic)}",
        is_due=False,
    )


def _nodes(ids: Sequence[int]) -> str:
    return listed([f"node {each}" for each in ids], _LISTED)


def save_diverged(replicas: Replicas) -> Iterator[NextStep]:
    """No broker brings these records back: they can only be produced again."""
    shown = replicas_shown(len(replicas.diverged), replicas.request)
    for path, offset in replicas.diverged[:shown]:
        output = f"{os.path.basename(os.path.normpath(path))}-{offset}"
        yield NextStep(
            f"{shown_path(path)} has committed records from offset {offset} on that the leader lacks, and loses them when its broker starts. Export "
            "them before, and produce again what is still needed.",
            f"kseg export --to json --from-offset {offset} --output {shell_quoted(output)} {shell_quoted(path)}",
        )
    yield from further_replicas(len(replicas.diverged) - shown, "replica", replicas.request)


def stop_move(path: str, why: str) -> NextStep:
    """path: the `-future` log. Without it a broker keeps the log where it is, and reports its log dir (observed with 4.3.1)."""
    return move_out(
        f"{why} Move it out of the data directory before the broker starts, which then keeps the other log and serves it. Request the move again "
        "with kafka-reassign-partitions.sh if it is still wanted.",
        path,
    )


class OneToMove(NamedTuple):
    """Of two directories of a partition on one node. gone: the one to move out of the way. which: it, in the words of a step."""

    gone: str
    kept: str
    gone_end_offset: int
    kept_end_offset: int
    which: str


def one_to_move(path: str, other: str, damaged: Collection[str]) -> OneToMove:
    """The one that is a link to the other; else the one whose log ends first; if both end at the same offset, the damaged one, else the
    later one in log.dirs. damaged: directories."""
    end, other_end = (end_offset_of(PartitionTarget(each)) for each in (path, other))
    is_other_link = places.islink(other) and _is_same(path, other)
    if is_other_link or (end, path not in damaged) > (other_end, other not in damaged):
        gone, kept, gone_end, kept_end = other, path, other_end, end
    else:
        gone, kept, gone_end, kept_end = path, other, end, other_end
    which = "Move the shorter one"
    if end == other_end:
        is_damaged = gone in damaged and kept not in damaged
        which = f"Both logs end at the same offset: move the {'damaged' if is_damaged else 'later'} one"
    return OneToMove(gone, kept, gone_end, kept_end, which)


def _is_same(path: str, other: str) -> bool:
    """Whether two paths lead to the same directory."""
    return places.realpath(path) == places.realpath(other)


def keep_one(replicas: Replicas, damaged: Collection[str]) -> Iterator[NextStep]:
    """If two data directories contain the same partition, move one of them away. damaged: directories."""
    shown = shown_of(len(replicas.twice), _LISTED)
    for path, other in replicas.twice[:shown]:
        one = one_to_move(path, other, damaged)
        twice = (
            f"A broker does not start with two directories of partition {shown_path(os.path.basename(path))}"
        )
        if _is_same(path, other):
            yield move_out(
                f"{twice}: move {shown_path(one.gone)}, which is a link, out of the data directory.", one.gone
            )
            continue
        yield NextStep(f"{twice}: compare them.", f"kseg diff {shell_quoted(other)} {shell_quoted(path)}")
        yield move_out(
            f"{one.which} out of the data directory (its log ends at offset {one.gone_end_offset}, that of "
            f"{shown_path(one.kept)} at {one.kept_end_offset}). Records that only it has remain in the moved directory.",
            one.gone,
        )
    pairs = Counter((os.path.dirname(path), os.path.dirname(other)) for path, other in replicas.twice[shown:])
    for (log_dir, other_dir), count in pairs.items():
        yield NextStep(
            f"Likewise for {'each of ' * (count > 1)}{counted(count, 'more partition')} that these two "
            "data directories both contain: compare them.",
            f"kseg diff {shell_quoted(other_dir)} {shell_quoted(log_dir)}",
        )


def put_back(replicas: Replicas, renamed: Iterable[str]) -> Iterator[NextStep]:
    """The steps for missing replicas. renamed: directories whose files get the case of their names back."""
    moved = {path: found for path, found in replicas.set_aside.items() if state_of(found) in OF_A_MOVE}
    strays = [(path, found) for path, found in replicas.set_aside.items() if path not in moved]
    shown = replicas_shown(len(strays), replicas.request)
    for path, stray in strays[:shown]:
        yield NextStep(*rename_back(path, stray))
    yield from further_replicas(len(strays) - shown, "replica", replicas.request)
    ends = {path: end_offset_of(PartitionTarget(found)) for path, found in moved.items()}
    copied = {
        path: copy
        for path, copy in replicas.copied.items()
        if path not in dict(strays) and copy.end_offset > ends.get(path, 0)
    }
    yield from _copy_missing(copied, replicas.request)
    here = {*dict(strays), *renamed, *copied}
    lost = [path for path in replicas.missing if path not in here]
    yield from _find_copies(lost, replicas)
    yield from _continue_remote(
        {path: replicas.remote[path] for path in lost if path in replicas.remote}, replicas.request
    )
    for path, found in moved.items():
        if path not in copied:
            yield NextStep(*rename_back(path, found))


def await_leaders(replicas: Replicas) -> Iterator[NextStep]:
    """The step for missing replicas of partitions that their own node may lead. With eligible leader replicas, the last node to start leads
    after all were killed (observed with 4.3.1: three empty logs)."""
    names = [os.path.basename(path) for path in replicas.rivals]
    if names:
        topics = {name.rpartition("-")[0] for name in names}
        topic = f" --topic {shell_word(topics.pop())}" if len(topics) == 1 else ""
        yield NextStep(
            f"Start the broker only while another node leads {shown_path(listed(names, _LISTED))}: it may be elected otherwise, even as the last one that "
            "starts after a power failure, and the other replicas are then truncated to its empty log. If none leads, copy the directory from a "
            "node that has it, while all are stopped. This tells who leads.",
            f"kafka-topics.sh --bootstrap-server {ANY_SERVER} --describe{topic}",
            is_due=False,
        )


def _find_copies(paths: Sequence[str], replicas: Replicas) -> Iterator[NextStep]:
    """paths: of missing partitions."""
    if not paths:
        return
    names = [os.path.basename(path) for path in paths]
    it, has, lies = ("it", "it has", "it is") if len(names) == 1 else ("them", "they have", "they are")
    too = ", and the segments in remote storage" if any(path in replicas.tiered for path in paths) else ""
    shown = names[: shown_of(len(names), _LISTED)]
    yield NextStep(
        f"Put {shown_path(listed(names, _LISTED))} back before a broker starts and recreates {it} empty: "
        f"from a backup, a disk that is not mounted, or wherever else {lies} on this machine (`kseg "
        f"verify` tells which copy is sound).{_without_a_copy(replicas.nodes_with_others, has, too)}",
        find_copies_command(shown),
    )


def _copy_missing(copied: Mapping[str, ReplicaCopy], request: Request) -> Iterator[NextStep]:
    """copied: by the place of a missing replica, the one of another node that has most of it."""
    shown = replicas_shown(len(copied), request)
    for path, copy in list(copied.items())[:shown]:
        yield NextStep(
            f"{shown_path(path)} is missing, and its node may lead with an empty log. Before any of the nodes starts, copy the replica of node "
            f"{copy.node}, whose log ends at offset {copy.end_offset}: its files are valid on every node.{_IF_FOUND}{lack_of_room(copy.directory, path)}",
            copy_command(copy.directory, path),
        )
    yield from further_replicas(len(copied) - shown, "replica", request)


def _empty_log_command(path: str, first: int, last: int) -> str:
    """The command that puts an empty log there. first: the log start. last: the last offset in remote storage."""
    log = shell_quoted(os.path.join(path, f"{last + 1:020d}{LOG_SUFFIX}"))
    place, log_dir = shell_quoted(path), shell_quoted(os.path.dirname(path))
    return f"mkdir -p {place} && touch {log} && chown -R --reference={log_dir} {place} && kseg recover --apply --log-start-offset {first} {place}"


def replace_cut(replicas: Replicas) -> Iterator[NextStep]:
    """The steps for logs that end before what remote storage has of them."""
    shown = shown_of(len(replicas.cut), _LISTED)
    for path, ahead in replicas.cut[:shown]:
        yield NextStep(
            f"{shown_path(path)} ends at offset {ahead.end_offset}, and remote storage has it up to {ahead.last_remote_offset}. Unless a later copy of "
            "the log turns up, move it out of the data directory and put an empty log in its place, with the leader epochs of remote storage: a "
            f"broker serves all of it from there and continues at {ahead.last_remote_offset + 1}.",
            f"{move_command(path)} && {_empty_log_command(path, ahead.log_start_offset, ahead.last_remote_offset)}",
        )
    command = command_line("list", {"--remote": True}, replicas.request)
    yield from likewise(len(replicas.cut) - shown, "partition that remote storage has", command)


def _continue_remote(ranges: Mapping[str, OffsetRange], request: Request) -> Iterator[NextStep]:
    """An empty local log that begins where remote storage ends, with the leader epochs from `__remote_log_metadata`: a broker serves the
    remote segments and continues after them (observed with 4.3.1)."""
    shown = shown_of(len(ranges), _LISTED)
    for path, (first, last) in list(ranges.items())[:shown]:
        yield NextStep(
            f"If {shown_path(os.path.basename(path))} is nowhere, keep its records in remote storage, offsets {first} to {last}: a broker that finds "
            f"an empty log with their leader epochs there serves them and continues at {last + 1}. Later records are lost.",
            _empty_log_command(path, first, last),
        )
    command = command_line("list", {"--remote": True}, request)
    more = "list what remote storage has of them"
    yield from likewise(len(ranges) - shown, "partition that remote storage has", command, more)


def _without_a_copy(nodes: Iterable[int], has: str, too: str) -> str:
    """The end of the sentence about missing replicas. nodes: those that have another replica. has: it has, or they have. too: what else is
    given up. An empty log that leads makes the other replicas truncate theirs to nothing (observed with 4.3.1)."""
    others = [f"node {node}" for node in sorted(nodes)]
    if not others:
        return f" To give up the records that only {has}{too}, start the broker."
    return (
        f" If there is none, stop {listed(others, _LISTED)} as well and copy the directory from there (of several, the one whose log ends "
        "last): started without it, this broker may lead with an empty log, and the other replicas delete their records."
    )
