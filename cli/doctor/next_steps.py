"""What to do next, in order, derived from an examination. Every step has a command that is ready to paste.

0. Make file systems writable that are mounted read-only.
1. If a broker is running and something has to change, stop it. What was read beside a running broker may be out of date.
2. Undo a kseg run that was killed half-way, and check again: it blocks everything else.
3. Give a metadata log under another name its own: without it nothing else can be judged. Correct a node id that is not that of the data
   directory: with a wrong one all partitions look stray.
4. If a broker does not accept some of the data directories together (they are of different nodes, or one is a copy of another), check
   those of one node. Before that, replace replicas that lack what another node has, give controllers back the place that they had in
   the quorum, and put missing replicas back.
5. Move out of the data directory what prevents a start: files that a broker cannot read, whatever is there by mistake, directories
   with a name that is not a partition's, and the second of two directories of the same partition.
6. Free space on a full file system, because repairs need some.
7. Repair: the plan, then the same with --apply. If bytes cannot be read, copy the disk first.
8. Correct topic ids, and put missing replicas back: a broker recreates such partitions empty when it starts.
9. Move away a log, a metadata snapshot or a metadata log with a gap if a broker fails on it and no repair changes that.
10. Check again.
11. Keep what is deleted after the start if it is still wanted: the logs of deleted topics, what retention would delete completely, and
    committed offsets that expire.
12. Change feature levels and topic configurations that 4.3.1 refuses, using the version of Kafka that ran before.
13. Once the nodes run, exchange voters of the quorum, abort hanging transactions, and reset groups whose committed offset is outside the
    log.

A metadata log that is in none of the directories comes last: find it, copy it from another node, or create it again
(`new_metadata_log_steps`). If nothing needs repair but something is suspicious, the only step is the command that examines it.
"""

import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kseg.cli.doctor.client_steps import end_transactions, remove_configs, set_features, set_groups
from kseg.cli.doctor.disk_steps import make_room, make_writable
from kseg.cli.doctor.foreign_steps import foreign_steps
from kseg.cli.doctor.metadata_log_steps import (
    copied_log,
    find_metadata_log,
    find_newer_metadata_log,
    gap_steps,
    name_metadata_log,
    snapshot_steps,
)
from kseg.cli.doctor.new_metadata_log_steps import new_log_steps
from kseg.cli.doctor.next_step import NextStep, likewise, move_command
from kseg.cli.doctor.obstacle_steps import (
    copy_linked_files,
    move_obstacles,
    no_data_directories,
    restore_case,
)
from kseg.cli.doctor.quorum_steps import add_voters, restore_voters
from kseg.cli.doctor.several_nodes_steps import copy_missing, replace_behind, take_apart, without_a_copy
from kseg.cli.doctor.situation import OtherNode, Situation
from kseg.cli.next_command import command_line
from kseg.cli.text.replica_words import rename_back
from kseg.internal_topics.broker_directories import end_offset_of
from kseg.internal_topics.metadata.replica_directories import OF_A_MOVE, state_of
from kseg.recovery.repair.meta_properties_repair import OPTION_VALUES
from kseg.segment.counted import counted, listed, shown_of
from kseg.segment.findings import ERROR
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shell_word, shown_path

_LISTED = 5  # directories with a step of their own
_SOURCES_OF_VALUES = (
    "the values that meta.properties had (node.id is in server.properties, cluster.id in "
    "meta.properties of any other node, directory.id in the output of `kseg metadata`)"
)


def next_steps(situation: Situation) -> Iterator[NextStep]:
    """The steps, in order; none if the broker can be started as it is."""
    is_due = bool(
        situation.hints.get(ERROR)
        or situation.is_obstructed
        or situation.missing
        or situation.lost_identities
        or situation.renamed_metadata_log
    )
    yield from make_writable(situation)
    if situation.hosts:
        yield from no_data_directories(
            situation.given_files,
            situation.given_empty,
            situation.request,
            situation.cluster_id,
            "--no-initial-controllers" if situation.has_dynamic_quorum else "",
            situation.unformatted_log_dirs,
        )
    if situation.properties is not None:
        from kseg.cli.doctor.properties_steps import properties_steps

        yield from properties_steps(situation.properties, situation.request)
    repairs = list(_repair_steps(situation))
    if any(host.is_running for host in situation.hosts) and any(
        step.needs_stopped_broker for step in repairs
    ):
        repairs.insert(0, _stop(situation))
    for step in repairs:
        yield step if is_due else replace(step, is_due=False)
    if not situation.is_half_done:
        if situation.deleted:
            from kseg.cli.doctor.deleted_topic_steps import keep_deleted

            yield from keep_deleted(situation.deleted, situation.request)
        if situation.due_deletions:
            from kseg.cli.doctor.due_retention import keep_expired

            yield from keep_expired(situation.due_deletions, situation.request)
        if situation.expiring and situation.expiry is not None:
            from kseg.cli.doctor.expiring_steps import keep_offsets

            yield from keep_offsets(situation.expiring, situation.expiry, situation.request)
        yield from add_voters(situation.replaced_voters)
        yield from set_features(situation)
        yield from remove_configs(situation)
        yield from end_transactions(situation)
        yield from set_groups(situation)
        if situation.lacks_metadata_log and situation.renamed_metadata_log is None:
            log_dir = situation.hosts[0].path
            yield find_metadata_log()
            yield copied_log(log_dir, is_due=False)
            yield from _make_new_log(situation, log_dir)


def _repair_steps(situation: Situation) -> Iterator[NextStep]:
    advice = situation.advice
    if situation.is_half_done:
        yield NextStep("Undo an interrupted change; everything else has to wait for that.", advice)
        yield _again(situation)
        return
    if situation.renamed_metadata_log is not None:
        yield name_metadata_log(situation.renamed_metadata_log)
        yield _again(situation)
        return
    if situation.other_nodes:
        yield from map(_set_node_id, situation.other_nodes)
        yield _again(situation)
        return
    inner = {os.path.normpath(path) for path in situation.in_the_way}
    if any(os.path.normpath(path) not in inner for path in situation.apart):
        copies = [path for path, is_copy in situation.apart.items() if is_copy]
        before_any_starts = [
            *replace_behind(situation.behind, situation.request),
            *restore_voters(situation.replaced_voters),
        ]
        yield from before_any_starts
        # what a node lacks beside a copy of one of its directories, only an examination without the copy shows
        if not copies:
            yield from _put_back(situation)
        if before_any_starts or (situation.copied and not copies):
            yield _again(situation)
            return
        yield from take_apart(situation.nodes, copies, situation.in_the_way, situation.request)
        return
    yield from restore_case(situation.in_other_case)
    yield from foreign_steps(situation)
    yield from move_obstacles(situation.in_the_way, move_command)
    if any(places.isdir(path) for path in situation.in_the_way):
        # with the directory gone, findings about its contents may no longer matter
        yield _again(situation)
        return
    yield from _keep_one(situation)
    if advice.split()[1:2] in (["recover"], ["retain"]):
        yield from make_room(situation)
    yield from copy_linked_files(situation.linked_files)
    if advice.startswith("kseg recover"):
        yield from _repair(situation, advice)
    elif advice:
        yield NextStep("Examine it more closely.", advice, is_due=bool(situation.hints.get(ERROR)))
    for path, doubt in situation.left_damaged.items():
        yield _bring_back(path, doubt)
    if situation.has_outdated_metadata:
        yield find_newer_metadata_log()
    else:
        yield from _explain_strays(situation)
        yield from _give_ids(situation)
    yield from _put_back(situation)
    for path, offset in situation.doubtful_starts.items():
        yield _confirm_log_start(path, offset)
    yield from snapshot_steps(situation.damaged_snapshots, move_command)
    yield from gap_steps([*situation.gapped_metadata_logs], move_command)
    for directory in situation.gapped_metadata_logs:
        yield from _make_new_log(situation, os.path.dirname(directory))
    yield from map(_set_aside, situation.unloadable)
    is_obstructed = (
        situation.is_obstructed
        or situation.unloadable
        or situation.missing
        or situation.left_damaged
        or situation.given_empty  # what was assigned to a replaced disk is known once the new one is formatted
        or situation.unformatted_log_dirs
    )
    if is_obstructed or advice.startswith("kseg recover"):
        yield _again(situation)


def _make_new_log(situation: Situation, log_dir: str) -> Iterator[NextStep]:
    yield from new_log_steps(
        log_dir,
        situation.topics,
        situation.cluster_id,
        situation.server,
        "--standalone" if situation.has_dynamic_quorum else "",
        situation.request,
    )


def _set_node_id(other: OtherNode) -> NextStep:
    file = os.path.join(other.log_dir, NAME_BY_ROLE[Role.META_PROPERTIES])
    edit = shlex.quote(rf"s/^node\.id *=.*/node.id={other.by_metadata}/")
    return NextStep(
        f"{shown_path(file)} says node {other.in_file}, but according to the metadata log the directory "
        f"belongs to node {other.by_metadata}: started as node {other.in_file}, a broker sets its "
        f"partitions aside as stray. Mount it on the machine of node {other.by_metadata}, or, if the id "
        "was changed by mistake, correct it here and in server.properties.",
        f"sed -i.before {edit} {shell_quoted(file)}",
    )


def _keep_one(situation: Situation) -> Iterator[NextStep]:
    """If two data directories contain the same partition, move away the one whose log ends first; if both end at the same offset, the
    later one in log.dirs."""
    shown = shown_of(len(situation.twice), _LISTED)
    for path, other in situation.twice[:shown]:
        yield NextStep(
            f"A broker does not start with two directories of partition {shown_path(os.path.basename(path))}: compare them.",
            f"kseg diff {shell_quoted(other)} {shell_quoted(path)}",
        )
        ends = end_offset_of(PartitionTarget(path)), end_offset_of(PartitionTarget(other))
        gone, kept = (other, path) if ends[0] > ends[1] else (path, other)
        which = (
            "Both logs end at the same offset: move the later one"
            if ends[0] == ends[1]
            else "Move the shorter one"
        )
        yield NextStep(
            f"{which} out of the data directory (its log ends at offset {min(ends)}, that of "
            f"{shown_path(kept)} at {max(ends)}). Records that only it has remain in the moved directory.",
            move_command(gone),
        )
    pairs = Counter(
        (os.path.dirname(path), os.path.dirname(other)) for path, other in situation.twice[shown:]
    )
    for (log_dir, other_dir), count in pairs.items():
        yield NextStep(
            f"Likewise for {'each of ' * (count > 1)}{counted(count, 'more partition')} that these two "
            "data directories both contain: compare them.",
            f"kseg diff {shell_quoted(other_dir)} {shell_quoted(log_dir)}",
        )


def _put_back(situation: Situation) -> Iterator[NextStep]:
    """Missing replicas: no repair can restore records that are in no file here."""
    moved = {path: found for path, found in situation.set_aside.items() if state_of(found) in OF_A_MOVE}
    strays = [(path, found) for path, found in situation.set_aside.items() if path not in moved]
    for path, stray in strays[: shown_of(len(strays), _LISTED)]:
        yield NextStep(*rename_back(path, stray))
    ends = {path: end_offset_of(PartitionTarget(found)) for path, found in moved.items()}
    copied = {
        path: copy
        for path, copy in situation.copied.items()
        if path not in dict(strays) and copy.end_offset > ends.get(path, 0)
    }
    yield from copy_missing(copied, situation.request)
    here = {*dict(strays), *situation.in_other_case, *copied}
    yield from _find_copies(
        [os.path.basename(path) for path in situation.missing if path not in here], situation
    )
    for path, found in moved.items():
        if path not in copied:
            yield NextStep(*rename_back(path, found))


def _find_copies(names: Sequence[str], situation: Situation) -> Iterator[NextStep]:
    """names: of missing partitions."""
    if not names:
        return
    it, has, lies = ("it", "it has", "it is") if len(names) == 1 else ("them", "they have", "they are")
    shown = names[: shown_of(len(names), _LISTED)]
    wanted = " -o ".join(f"-name {shell_word(each)}" for name in shown for each in _names_of_copies(name))
    yield NextStep(
        f"Put {shown_path(listed(names, _LISTED))} back before a broker starts and recreates {it} empty: "
        f"from a backup, a disk that is not mounted, or wherever else {lies} on this machine (`kseg "
        f"verify` tells which copy is sound).{without_a_copy(situation.nodes_with_others, has)}",
        rf"find / -type d \( {wanted} \) -not -empty",
    )


def _names_of_copies(name: str) -> tuple[str, ...]:
    """Patterns of names: its own, one with a suffix (`-stray`, `.bak`), and what `move_command` makes of that."""
    return (name, f"{name}[!0-9]*", f"*-{name}[!0-9]*")


def _explain_strays(situation: Situation) -> Iterator[NextStep]:
    """Partitions whose topic the metadata log does not have; no repair makes a broker serve them."""
    strays = situation.of_unknown_topics
    if not strays:
        return
    names = [own_partition_name(path) for path in strays]
    topics = tuple(dict.fromkeys(name.topic for name in names if name is not None))
    it, has = ("it", "its topic") if len(strays) == 1 else ("them", "their topics")
    yield NextStep(
        f"A broker sets {shown_path(listed([*map(os.path.basename, strays)], _LISTED))} aside as stray, because the metadata log does not "
        f"have {has} on this node: see whether the topic was deleted or moved, or the metadata log is an older one or another cluster's "
        f"(then put the right one back first). If the records are needed, copy {it} away before a broker starts.",
        command_line("metadata", {"--history": True}, replace(situation.request, topics=topics)),
    )


def _give_ids(situation: Situation) -> Iterator[NextStep]:
    """No file tells whether a directory belongs to the current topic of its name or to a deleted one, so the user has to decide."""
    known = situation.set_aside.values()  # their topic is known, and `_put_back` renames them
    wrong_ids = {path: topic_id for path, topic_id in situation.wrong_ids.items() if path not in known}
    shown = shown_of(len(wrong_ids), _LISTED)
    for path, topic_id in list(wrong_ids.items())[:shown]:
        yield NextStep(
            f"A broker does not serve {shown_path(os.path.basename(path))}, because its topic id is not "
            "that of the topic. If the partition belongs to this topic nevertheless (and not to a "
            "deleted one, or to another cluster), give it the id; `kseg undo` reverts that.",
            f"kseg recover --apply --topic-id {topic_id} {shell_quoted(path)}",
        )
    command = command_line("verify", {"--verbose": True}, situation.request)
    yield from likewise(len(wrong_ids) - shown, "partition", command, "list the command for each")


def _bring_back(partition: str, doubt: str) -> NextStep:
    return NextStep(
        f"No repair changes {shown_path(os.path.basename(partition))}: {doubt}. What is lost has to come from another replica or a backup.",
        f"kseg verify {shell_quoted(partition)}",
    )


def _confirm_log_start(partition: str, offset: int) -> NextStep:
    """Whether records were deleted is in no file, so the user has to decide."""
    return NextStep(
        f"If the records of {shown_path(os.path.basename(partition))} below offset {offset} were deleted (kafka-delete-records.sh), a "
        "broker serves them again: see what keeps them deleted. If not, there is nothing to do.",
        f"kseg recover --log-start-offset {offset} {shell_quoted(partition)}",
        is_due=False,
    )


def _set_aside(partition: str) -> NextStep:
    return NextStep(
        f"A broker fails on {shown_path(os.path.basename(partition))}, and no repair changes that: with "
        "the broker stopped, move it out of the data directory. The broker recreates it empty and "
        "fetches what other replicas have, provided that one of them leads; records that only this one "
        "has remain in the moved directory, for `kseg export`.",
        move_command(partition),
    )


def _stop(situation: Situation) -> NextStep:
    node = "" if situation.node_id is None else f" --node-id {situation.node_id}"
    return NextStep(
        "Stop the broker: kseg changes nothing while it runs, and what it is writing can look like damage.",
        f"kafka-server-stop.sh{node}",
    )


def _again(situation: Situation) -> NextStep:
    """The data directories below a path are named themselves: what steps move out of one is beside it, and below the path."""
    paths = dict[str, None]()
    for path in situation.request.paths:
        below = os.path.join(os.path.normpath(path), "")
        inner = [host.path for host in situation.hosts if os.path.normpath(host.path).startswith(below)]
        is_above = inner and all(host.path != path for host in situation.hosts)
        paths |= dict.fromkeys(inner if is_above else [path])
    return NextStep(
        "Check again.", command_line("doctor", {}, replace(situation.request, paths=tuple(paths)))
    )


def _repair(situation: Situation, advice: str) -> Iterator[NextStep]:
    plain, with_bits = "kseg recover", ""
    given: dict[str, object] = {"--apply": True}
    if situation.flipped_batches:
        given["--repair-bits"] = True
        advice, plain = advice.replace(plain, f"{plain} --repair-bits", 1), f"{plain} --repair-bits"
        batches = counted(situation.flipped_batches, "damaged batch")
        with_bits = f" (--repair-bits restores {batches}, in which one bit is inverted, instead of removing the records)"
    if situation.has_unreadable:
        yield NextStep(
            "The disk is failing, and every further read may make it worse. Write a repaired copy of what can be read to another disk.",
            f"{advice} --output {shell_quoted('repaired')}",
        )
    yield NextStep("See what a repair would do; nothing is changed.", advice)
    how = "Or repair in place, if the disk still takes writes" if situation.has_unreadable else "Repair"
    how += with_bits
    if situation.has_linked_directories:
        how += " (--follow-links includes directories that are reached through links)"
        given["--follow-links"] = True
    if not situation.values_needed:
        yield NextStep(
            f"{how}; `kseg undo` reverts it.",
            advice.replace(plain, " ".join(["kseg recover", *given]), 1),
        )
    for repair in situation.values_needed.values():
        paths = situation.request.paths if len(situation.hosts) == 1 else repair.together
        wanted = {**given, **{name: OPTION_VALUES[name] for name in repair.needed}}
        instead = (
            " A broker with ZooKeeper (3.9 or older) starts without it, and writes it."
            if repair.may_be_of_zookeeper
            else ""
        )
        yield NextStep(
            f"{how} with {_SOURCES_OF_VALUES}; `kseg undo` reverts it.{instead}",
            command_line("recover", wanted, replace(situation.request, paths=paths)),
        )
