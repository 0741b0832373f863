"""The steps for share groups of which their coordinator has lost what it knew, while their states are there
(`internal_topics.groups.share_group_records`): append it again before a start, or else begin anew."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kseg.cli.doctor.next_step import NextStep, append_command
from kseg.segment.counted import counted, listed
from kseg.segment.terminal import visible

if TYPE_CHECKING:
    from kseg.internal_topics.groups.group_results import ForgottenState

_LISTED = 5  # groups named in a sentence
_AT_ONCE = 25  # groups in a command


def remember_share_groups(found: "Sequence[ForgottenState]") -> Iterator[NextStep]:
    """The steps before a start."""
    by_log: dict[str, dict[str, list[ForgottenState]]] = {}
    for each in found:
        if each.log is not None:
            by_log.setdefault(each.log, {}).setdefault(each.group, []).append(each)
    for log, groups in by_log.items():
        names = [*groups]
        for at in range(0, len(names), _AT_ONCE):
            some = names[at : at + _AT_ONCE]
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
