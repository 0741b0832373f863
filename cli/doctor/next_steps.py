"""What to do next, in order, derived from an examination. Every step has a command that is ready to paste.

0. Make file systems that are mounted read-only writable.
1. If a broker is running and something has to change, copy the deleted logs that it has open, and stop it. What was read beside a running
   broker may be out of date.
2. Undo a kseg run that was killed half-way, and check again: it blocks everything else.
3. Rename a metadata log that is under another name: without it nothing else can be judged. Correct a node id that does not match the data
   directory: with a wrong one all partitions look stray.
4. If a broker does not accept some of the data directories together (they are of different nodes, or one is a copy of another), check
   those of one node. Before that, export the records of replicas that their leader truncates, put damaged replicas together from what
   others have, replace replicas that lack what another node has, give controllers back the place that they had in the quorum, and put
   missing replicas back.
5. Move out of the data directory what prevents a start: files that a broker cannot read, whatever is there by mistake, directories
   with a name that is not a partition's, and the second of two directories of the same partition.
6. Free space on a full file system, because repairs need some.
7. Find logs that are missing, then repair: the plan, then the same with --apply. If bytes cannot be read, copy the disk first. If nothing
   needs repair, write logs with records that their coordinator fails to load again without these.
8. Correct topic ids, and put missing replicas back: a broker recreates such partitions empty when it starts. Make the controller and the
   coordinators continue after the producer ids and epochs that are in the logs, write lost COMMIT markers and lost records of share groups,
   and find later copies of logs that lack committed transactions.
9. Move away a log, a metadata snapshot or a metadata log with a gap if a broker fails on it and no repair changes that.
10. Check again.
11. Keep what is deleted after the start if it is still wanted: segments that retention has deleted by a wrong clock, the logs of deleted
    topics, what retention would delete completely, and committed offsets that expire, or are in a partition where their coordinator does
    not look for them. Compact what a broker's cleaner cannot.
12. Change feature levels and topic configurations that 4.3.1 refuses, using the version of Kafka that ran before.
13. Once the nodes run, replace voters of the quorum, elect leaders, abort hanging transactions, reset groups whose committed offset is
    outside the log, or was in a partition where their coordinator does not look for it, delete committed offsets of deleted topics, and
    create the states of share groups again that are lost or ahead of the log.

A metadata log that is in none of the directories comes last: find it, copy it from another node, or create it again
(`new_metadata_log_steps`). If nothing needs repair but something is suspicious, the only step is the command that examines it.
"""

import os
from collections.abc import Iterator
from dataclasses import replace

from kseg.cli.doctor.appended_record_steps import forget_ids, remember_share_groups, skip_producer_ids
from kseg.cli.doctor.client_steps import end_transactions, find_lost_ends, write_markers
from kseg.cli.doctor.committed_offset_steps import (
    enable_protocols,
    raise_transaction_version,
    reset_groups,
    save_unreachable,
)
from kseg.cli.doctor.disk_steps import make_room, make_writable
from kseg.cli.doctor.metadata_log_steps import (
    are_as_formatted,
    copied_log,
    find_metadata_log,
    find_newer_metadata_log,
    gap_steps,
    name_metadata_log,
    remove_configs,
    set_features,
    snapshot_steps,
)
from kseg.cli.doctor.moved_log_steps import stop_moves
from kseg.cli.doctor.new_metadata_log_steps import new_log_steps
from kseg.cli.doctor.next_step import NextStep, link_to_mount
from kseg.cli.doctor.obstacle_steps import (
    copy_linked_files,
    move_obstacles,
    no_data_directories,
    restore_case,
)
from kseg.cli.doctor.quorum_steps import add_voters, restore_voters
from kseg.cli.doctor.repair_steps import (
    bring_back,
    confirm_log_starts,
    copy_open_logs,
    find_lost_logs,
    is_recover,
    repair_steps,
    set_unloadable_aside,
)
from kseg.cli.doctor.replica_steps import (
    await_leaders,
    keep_one,
    put_back,
    replace_behind,
    replace_cut,
    save_diverged,
    start_in_order,
)
from kseg.cli.doctor.several_nodes_steps import add_cluster_ids, set_ids, take_apart
from kseg.cli.doctor.situation import Situation
from kseg.cli.doctor.unloaded_steps import write_again
from kseg.cli.doctor.unserved_steps import elect_leaders, explain_strays, foreign_steps, give_ids
from kseg.cli.next_command import command_line
from kseg.segment.storage import places
from kseg.segment.terminal import shown_path


def next_steps(situation: Situation) -> Iterator[NextStep]:
    """The steps, in order; none if the broker can be started as it is."""
    disks, metadata = situation.disks, situation.metadata
    advice = situation.advice
    yield from make_writable(disks, advice if situation.repairs.has_errors and is_recover(advice) else "")
    if disks.hosts:
        flag = "--no-initial-controllers" if metadata.has_dynamic_quorum else ""
        yield from no_data_directories(situation.obstacles, situation.cluster_id, flag)
    if situation.properties is not None:
        from kseg.cli.doctor.properties_steps import properties_steps

        yield from properties_steps(situation.properties, situation.request)
    before_start = list(_before_start(situation, advice))
    is_due = bool(
        situation.repairs.has_errors
        or situation.is_obstructed
        or situation.replicas.missing
        or situation.replicas.cut
        or situation.identities.lost
        or metadata.renamed
        or situation.damaged_replicas.are_mended
    )
    if disks.is_broker_running and any(step.needs_stopped_broker for step in before_start):
        before_start = [
            *copy_open_logs(situation.repairs, disks.hosts),
            _stop(situation),
            *before_start,
        ]
    for step in before_start:
        yield step if is_due else replace(step, is_due=False)
    if situation.repairs.is_half_done:
        return
    yield from _keep_what_goes(situation)
    yield from _once_running(situation)
    if metadata.is_lacking and situation.obstacles.unread:
        yield find_metadata_log(situation.obstacles.unread, _again(situation).command)
    elif metadata.is_lacking and metadata.renamed is None:
        log_dir = disks.hosts[0].path
        is_as_formatted = are_as_formatted([host.path for host in disks.hosts])
        yield find_metadata_log(is_as_formatted=is_as_formatted)
        yield copied_log(log_dir, is_due=False)
        if not is_as_formatted:  # else the node makes one itself
            yield from _make_new_log(situation, log_dir)


def _before_start(situation: Situation, advice: str) -> Iterator[NextStep]:
    """Steps 2 to 10; each of steps 2 to 4 is returned alone, because only after it can be determined what else has to be done."""
    obstacles, metadata, identities = situation.obstacles, situation.metadata, situation.identities
    if situation.repairs.is_half_done:
        undo = "Undo an interrupted change"
        if absent := situation.repairs.absent_journals:
            undo = f"Mount again what {shown_path(absent[0])} lies on, then undo an interrupted change"
        yield NextStep(f"{undo}; everything else has to wait for that.", advice)
        yield _again(situation)
    elif metadata.renamed is not None:
        yield name_metadata_log(metadata.renamed)
        yield _again(situation)
    elif identities.of_other_nodes or identities.wrong:
        yield from set_ids(identities, situation.server)
        yield _again(situation)
    elif not {*map(os.path.normpath, identities.apart)} <= {*map(os.path.normpath, obstacles.in_the_way)}:
        yield from _of_several_nodes(situation)
    else:
        yield from restore_case(obstacles)
        renamed = situation.replicas.set_aside.values()
        yield from foreign_steps(situation.unserved, renamed, has_metadata=metadata.is_read)
        yield from move_obstacles(obstacles)
        if any(places.isdir(path) for path in obstacles.in_the_way):
            # with the directory gone, findings about its contents may no longer matter
            yield _again(situation)
        else:
            yield from _repairs(situation, advice)


def _of_several_nodes(situation: Situation) -> Iterator[NextStep]:
    """Examine the nodes one by one. Before and after that, the steps for what shows only when they are examined together."""
    identities, replicas = situation.identities, situation.replicas
    yield from save_diverged(replicas)
    replaced = {path for path, _ in (*replicas.behind, *replicas.shorter, *replicas.moved_behind)}
    whole = [*situation.damaged_replicas.steps(replaced), *stop_moves(replicas, situation.damaged_replicas)]
    if whole:
        yield from whole
        yield _again(situation)
        return
    before_any_starts = [
        *replace_behind(replicas),
        *restore_voters(identities.replaced_voters),
    ] or [*add_cluster_ids(identities), *skip_producer_ids(situation.metadata.reissued_ids)]
    yield from before_any_starts
    # with a copy of one of its directories there, what a node lacks shows only when it is examined without the copy
    if not identities.copies:
        yield from put_back(replicas, situation.obstacles.in_other_case)
    if before_any_starts or (replicas.copied and not identities.copies):
        yield _again(situation)
    else:
        yield from take_apart(identities, situation.obstacles.in_the_way)
        yield from _coordinators_before_start(situation)
        yield from start_in_order(replicas, situation.leaderless)


def _repairs(situation: Situation, advice: str) -> Iterator[NextStep]:
    """Steps 5 (of partitions that are there twice) to 10."""
    repairs, metadata, obstacles, replicas = (
        situation.repairs,
        situation.metadata,
        situation.obstacles,
        situation.replicas,
    )
    damaged = situation.damaged_replicas
    whole = [*damaged.steps({path for path, _ in replicas.moved_behind}, replicas.twice)]
    whole += stop_moves(replicas, damaged)
    if whole:
        yield from whole
        yield _again(situation)
        return
    yield from keep_one(replicas, damaged.damaged)
    if advice.split()[1:2] in (["recover"], ["retain"]):
        yield from make_room(situation.disks, keeps_marked=bool(situation.deleted_early))
    yield from copy_linked_files(obstacles)
    yield from find_lost_logs(repairs)
    if is_recover(advice):
        values_needed, is_one = situation.identities.values_needed, len(situation.disks.hosts) == 1
        yield from repair_steps(repairs, advice, values_needed, is_one_log_dir=is_one)
    elif advice:
        yield NextStep("Examine it more closely.", advice, is_due=repairs.has_errors)
        yield from write_again(situation.unloaded)
    yield from bring_back(repairs)
    if metadata.is_outdated:
        yield find_newer_metadata_log()
    else:
        yield from explain_strays(situation.unserved)
        yield from give_ids(situation.unserved, replicas.set_aside.values())
    yield from put_back(replicas, obstacles.in_other_case)
    yield from replace_cut(replicas)
    yield from await_leaders(replicas)
    yield from skip_producer_ids(metadata.reissued_ids)
    yield from _coordinators_before_start(situation)
    yield from confirm_log_starts(repairs)
    yield from snapshot_steps(metadata.damaged_snapshots)
    yield from gap_steps(metadata.gapped)
    for directory in metadata.gapped:
        yield from _make_new_log(situation, os.path.dirname(directory))
    yield from set_unloadable_aside(repairs)
    yield from map(link_to_mount, situation.unserved.mounted)
    if (
        situation.is_obstructed
        or is_recover(advice)
        or repairs.unloadable
        or repairs.left_damaged
        or replicas.missing
        or replicas.cut
        or obstacles.given_empty  # what was assigned to a replaced disk is known once the new one is formatted
        or obstacles.unformatted
    ):
        yield _again(situation)


def _coordinators_before_start(situation: Situation) -> Iterator[NextStep]:
    yield from forget_ids({path: [*names] for path, names in situation.clients.ids_behind.items()})
    yield from write_markers(situation.clients)
    yield from remember_share_groups(situation.clients.forgotten)
    yield from find_lost_ends(situation.clients)


def _keep_what_goes(situation: Situation) -> Iterator[NextStep]:
    """Step 11."""
    if situation.deleted_early:
        from kseg.cli.doctor.clock_steps import restore_deleted

        yield restore_deleted(situation.deleted_early, situation.metadata.latest_ms, situation.request)
    if situation.deleted:
        from kseg.cli.doctor.deleted_topic_steps import keep_deleted

        yield from keep_deleted(situation.deleted, situation.request)
    if situation.uncleaned:
        from kseg.cli.doctor.uncleaned_steps import clean_logs

        yield from clean_logs(situation.uncleaned, situation.request)
    if situation.due_deletions:
        from kseg.cli.doctor.due_retention import keep_counted_twice, keep_expired

        yield from keep_expired(situation.due_deletions, situation.request)
        yield from keep_counted_twice(situation.due_deletions, situation.request)
    if situation.expiring and situation.expiry is not None:
        from kseg.cli.doctor.expiring_steps import keep_offsets

        yield from keep_offsets(situation.expiring, situation.expiry, situation.request)
    yield from save_unreachable(situation.clients.unreachable, situation.request)


def _once_running(situation: Situation) -> Iterator[NextStep]:
    """Steps 12 and 13."""
    server = situation.server
    yield from add_voters(situation.identities.replaced_voters)
    yield from elect_leaders(situation.leaderless, server)
    yield from set_features(situation.metadata, server)
    yield from remove_configs(situation.metadata, server, situation.request)
    yield from raise_transaction_version(situation.clients.unusable_ids, server)
    yield from enable_protocols(situation.clients, server)
    yield from end_transactions(situation.clients, server)
    yield from reset_groups(situation.clients, server)


def _make_new_log(situation: Situation, log_dir: str) -> Iterator[NextStep]:
    yield from new_log_steps(
        log_dir,
        situation.topics,
        situation.cluster_id,
        situation.server,
        "--standalone" if situation.metadata.has_dynamic_quorum else "",
        situation.request,
    )


def _stop(situation: Situation) -> NextStep:
    node = "" if situation.node_id is None else f" --node-id {situation.node_id}"
    return NextStep(
        "Stop the broker: kseg changes nothing while it runs, and what it is writing can look like damage.",
        f"kafka-server-stop.sh{node}",
    )


def _again(situation: Situation) -> NextStep:
    """The data directories below a path are named one by one: what the steps move out of one lies beside it, which is below the path."""
    paths = dict[str, None]()
    for path in situation.request.paths:
        below = os.path.join(os.path.normpath(path), "")
        inner = [host.path for host in situation.disks.hosts if os.path.normpath(host.path).startswith(below)]
        is_above = inner and all(host.path != path for host in situation.disks.hosts)
        paths |= dict.fromkeys(inner if is_above else [path])
    return NextStep(
        "Check again.", command_line("doctor", {}, replace(situation.request, paths=tuple(paths)))
    )
