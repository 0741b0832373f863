"""The steps for groups whose coordinator looks for them in another partition of `__consumer_offsets` than the one that has their records,
because the topic was given more partitions (`internal_topics.groups.coordinator_partition`): save their offsets, and commit them again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kseg.cli.doctor.next_step import NextStep, likewise
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.segment.counted import listed, plural
from kseg.segment.terminal import shell_word, visible

if TYPE_CHECKING:
    from kseg.internal_topics.groups.group_results import OffsetOfGroup

_NAMED = 20  # groups in a command: the tool passes over those that it is not given by name
_FILES = 5
_LISTED = 5


def save_unreachable(found: "Sequence[OffsetOfGroup]", request: Request) -> Iterator[NextStep]:
    """The steps before a start, or while the broker runs: their coordinator keeps these offsets until they expire."""
    parts = [*_files(found)]
    for file, names in parts[:_FILES]:
        yield NextStep(
            f"__consumer_offsets was given more partitions, and a broker that starts looks for {_groups(names)} in another one than the one "
            "that has their offsets: their consumers start where auto.offset.reset says, and repeat or skip everything. Save the offsets.",
            command_line(
                "groups",
                {"--reset-csv": file, "--group": tuple(names)},
                replace(request, topics=(), partition=None),
            ),
            is_due=False,
        )
    more = sum(len(names) for _, names in parts[_FILES:])
    yield from likewise(more, "group", command_line("groups", {"--verbose": True}, request))


def restore_unreachable(found: "Sequence[OffsetOfGroup]", server: str) -> Iterator[NextStep]:
    """The steps once the broker runs."""
    for file, names in [*_files(found)][:_FILES]:
        groups = " ".join(f"--group {shell_word(name)}" for name in names)
        yield NextStep(
            f"With the broker running and their consumers stopped, commit the offsets of {_groups(names)} again; then replace --dry-run "
            "with --execute.",
            f"kafka-consumer-groups.sh --bootstrap-server {server} {groups} --reset-offsets --from-file {file} --dry-run",
        )


def _files(found: "Sequence[OffsetOfGroup]") -> Iterator[tuple[str, Sequence[str]]]:
    """File names, and the groups whose offsets are to be saved in each."""
    names = [*dict.fromkeys(each.group for each in found)]
    for number, at in enumerate(range(0, len(names), _NAMED), 1):
        yield (
            "unreachable-offsets.csv" if number == 1 else f"unreachable-offsets-{number}.csv",
            names[at : at + _NAMED],
        )


def _groups(names: Sequence[str]) -> str:
    noun = plural("group") if len(names) > 1 else "group"
    return f"{noun} {visible(listed(names, _LISTED))}"
