"""The steps that append a record to a log which has lost its end, before a node starts with it (each observed with 4.3.1,
tests/kafka/test_ids_behind.py, test_new_metadata_log.py, test_forgotten_share_groups.py).

transactional ids   tombstones make their coordinator forget them, so that they get new producer ids
share groups        records make their coordinator know them again, where their states are there (`share_group_records`)
producer ids        a record in the metadata log makes the controller continue after those in the logs; of several
                    controllers, the others get a copy of that log
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kseg.cli.doctor.next_step import NextStep, append_command, copy_command, move_command
from kseg.internal_topics.metadata.reissued_producer_ids import record_line
from kseg.internal_topics.transactions.ids_behind import tombstone_lines
from kseg.segment.counted import counted, listed
from kseg.segment.diagnosis import ReissuedProducerIds
from kseg.segment.terminal import shown_path, visible

if TYPE_CHECKING:
    from kseg.internal_topics.groups.group_results import ForgottenState

_LISTED = 5  # ids or groups named in a sentence
_IDS_AT_ONCE, _GROUPS_AT_ONCE = 50, 25  # in a command


def forget_ids(behind: Mapping[str, Sequence[str]]) -> Iterator[NextStep]:
    """behind: the ids, by the directory of the partition of `__transaction_state` that has them; each replica is listed."""
    for directory, names in behind.items():
        for at in range(0, len(names), _IDS_AT_ONCE):
            some = names[at : at + _IDS_AT_ONCE]
            yield NextStep(
                f"Partitions are ahead of the coordinator of {visible(listed(some, _LISTED))}, and reject its markers or the producer's records: "
                "what is committed then stays invisible, and producers with such an id fail, or wait forever. Before any node starts, add the tombstones that make it forget "
                "them and assign them new producer ids; `kseg undo` reverts that.",
                append_command(tombstone_lines(some), directory),
            )


def remember_share_groups(found: "Sequence[ForgottenState]") -> Iterator[NextStep]:
    """The steps before a start."""
    by_log: dict[str, dict[str, list[ForgottenState]]] = {}
    for each in found:
        if each.log is not None:
            by_log.setdefault(each.log, {}).setdefault(each.group, []).append(each)
    for log, groups in by_log.items():
        names = [*groups]
        for at in range(0, len(names), _GROUPS_AT_ONCE):
            some = names[at : at + _GROUPS_AT_ONCE]
            lines = [line for name in some for line in _lines(groups[name])]
            whose = "its" if len(some) == 1 else "their"
            yield NextStep(
                f"{counted(len(some), 'share group')} ({visible(listed(some, _LISTED))}) lost {whose} records in __consumer_offsets, but not "
                f"{whose} progress: members that join would begin where share.auto.offset.reset says, and skip or repeat records, or get none. "
                f"Before the broker starts, append what {whose} coordinator has to know for them to go on where they had stopped; `kseg undo` "
                "reverts that.",
                append_command(lines, log),
            )


def _lines(states: "Sequence[ForgottenState]") -> Iterator[str]:
    from kseg.internal_topics.groups.share_group_records import share_group_lines, with_initialized

    group, known = states[0].group, states[0].group_epoch
    epoch = max(each.state_epoch for each in states)
    numbers: dict[tuple[str, str], list[int]] = {}
    for each in states:
        numbers.setdefault((each.topic, each.topic_id), []).append(each.partition)
    topics = with_initialized(states[0].group_topics, group, numbers)
    yield from share_group_lines(group, epoch if known is None or known < epoch else None, topics)


def skip_producer_ids(found: Sequence[tuple[str, ReissuedProducerIds]]) -> Iterator[NextStep]:
    """found: metadata logs of stopped controllers."""
    for metadata_log, about in sorted(found, key=lambda each: each[0] != each[1].newest):
        if metadata_log == about.newest:
            yield NextStep(
                f"Producers in the logs have ids up to {about.greatest_id}, but the controller allocates ids from {about.next_id} on, because its "
                "metadata log is new or an older copy: a broker acknowledges the first records of a new producer with such an id, but drops "
                "them. Before any node starts, add the record that makes the controller continue above these ids; `kseg undo` reverts that.",
                append_command([record_line(about)], metadata_log, f"--leader-epoch {about.epoch}"),
            )
        else:
            yield NextStep(
                f"The controller with {shown_path(metadata_log)} may be elected, and allocates ids from {about.next_id} on, which producers already "
                "have. Before any node starts, move that log out of the data directory, and copy the one with the record that prevents it.",
                copy_command(about.newest, metadata_log, first=move_command(metadata_log)),
            )
