"""The steps for logs of moves that replace longer ones, or have replaced them, and for logs that lost what their copies still have
(`internal_topics/metadata/moved_logs`).

A longer log may be damaged where the other one is not: what either has is put together first.
"""

from collections.abc import Iterator

from kseg.cli.doctor.damaged_replicas import DamagedReplicas
from kseg.cli.doctor.next_step import (
    NextStep,
    copy_command,
    further_replicas,
    lack_of_room,
    lack_of_room_outside,
    move_command,
    replicas_shown,
)
from kseg.cli.doctor.replica_steps import Replicas, stop_move
from kseg.internal_topics.metadata.replica_directories import state_of
from kseg.segment.partition.names import PartitionState
from kseg.segment.terminal import shown_path


def stop_moves(replicas: Replicas, damaged: DamagedReplicas) -> Iterator[NextStep]:
    """Call it after the steps for damaged replicas: a log from which they take something stays where it is until it is checked again."""
    found = [pair for pair in replicas.moved_behind if pair[0] not in damaged.sources]
    shown = replicas_shown(len(found), replicas.request)
    for path, former in found[:shown]:
        if state_of(path) is PartitionState.FUTURE:
            yield stop_move(
                path, f"{shown_path(path)} has fewer records than {shown_path(former)}, which it replaces."
            )
            continue
        completed = damaged.completed(former, path)
        yield from completed
        if not completed:
            is_copy = state_of(former) is PartitionState.FUTURE
            moved = "to which the replica is being moved" if is_copy else "from which the replica was moved"
            end = "truncates" if is_copy else "deletes"
            yield NextStep(
                f"{shown_path(path)} has fewer records than {shown_path(former)}, {moved}. Before a broker starts and {end} that, "
                f"move this one out of the data directory, and copy the other one: its files are valid here too."
                f"{lack_of_room(former, path)}{lack_of_room_outside(path)}",
                copy_command(former, path, first=move_command(path)),
            )
    yield from further_replicas(len(found) - shown, "moved log", replicas.request)
