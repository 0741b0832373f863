"""The steps for groups that do not continue where they stopped, with a running broker: because their committed offset is outside the log or
in a deleted topic, because the state of a share group is lost, or because their coordinator looks for them in another partition of
`__consumer_offsets` than the one that has their records, since the topic was given more (`coordinator_partition`)."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kseg.cli.doctor.client_steps import Clients
from kseg.cli.doctor.next_step import NextStep, likewise
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.segment.counted import listed, plural, shown_of
from kseg.segment.terminal import shell_quoted, shell_word, shown_path, visible

if TYPE_CHECKING:
    from kseg.internal_topics.groups.group_results import (
        ForgottenState,
        OffsetOfGroup,
        ShareStateOfGroup,
        StatelessPartition,
    )

O = TypeVar("O", "OffsetOfGroup", "ShareStateOfGroup", "StatelessPartition", "ForgottenState")

_LISTED = 5  # groups with a step of their own
_NAMED = 5  # groups named in a sentence
_FILES = 5
_IN_A_FILE = 20  # the tool passes over groups that it is not given by name
_SHARE_TOOL = "kafka-share-groups.sh"
_Action = tuple[str, str]  # why, and options of Kafka's tool


def enable_protocols(clients: Clients, server: str) -> Iterator[NextStep]:
    """Tools that describe or reset such groups fail as well, so these steps precede the others."""
    from kseg.internal_topics.groups.disabled_protocols import PROTOCOLS

    classic = " Consumers with group.protocol=classic need no change: they continue at the offsets."
    left_out = [each for each in clients.unusable_groups if each.setting == PROTOCOLS]
    for each in clients.unusable_groups:
        if each in left_out:
            continue
        yield NextStep(
            f"{each.setting} has level 0, and no client of the {each.protocol} protocol can use {visible(listed(each.groups, _NAMED, 'group'))}. "
            f"With the broker running, raise it to 1; no restart is needed.{classic if each.protocol == 'consumer' else ''}",
            f"kafka-features.sh --bootstrap-server {server} upgrade --feature {each.setting}=1",
        )
    if left_out:
        file, names = str(clients.request.also["--server-properties"]), [each.protocol for each in left_out]
        groups = [group for each in left_out for group in each.groups]
        edit = shlex.quote(rf"s/^group\.coordinator\.rebalance\.protocols\s*=.*/&,{','.join(names)}/")
        yield NextStep(
            f"{PROTOCOLS} in {shown_path(file)} lacks {' and '.join(names)}, and no client of that protocol can use "
            f"{visible(listed(groups, _NAMED, 'group'))} while a broker with this file is the coordinator. Add it in the files of all brokers that "
            f"lack it, and restart them.{classic if 'consumer' in names else ''}",
            f"sed -i.before -E {edit} {shell_quoted(file)}",
        )


def raise_transaction_version(ids: Sequence[str], server: str) -> Iterator[NextStep]:
    """A coordinator that has refused such an id once does not serve it until it is loaded anew."""
    if ids:
        yield NextStep(
            f"transaction.version was lowered to 0, and no producer can use {visible(listed(ids, _LISTED))}. With the broker running, "
            "before producers start, raise it to 1, which is the protocol of 0 as well. If a producer was refused before, restart the broker afterwards.",
            f"kafka-features.sh --bootstrap-server {server} upgrade --feature transaction.version=1",
        )


def reset_groups(clients: Clients, server: str) -> Iterator[NextStep]:
    """The steps for groups that do not continue where they stopped, by the kind of what is wrong."""
    yield from _by_topic(clients.stranded, _set_group, clients, server)
    yield from _by_topic(clients.of_former_topics, _delete_former, clients, server)
    # nothing is due: they expire like others
    yield from _by_topic(clients.of_deleted_topics, _delete_when_recreated, clients, server, is_due=False)
    yield from _by_topic(clients.stateless, _begin_anew, clients, server, _SHARE_TOOL)
    not_appended = [each for each in clients.forgotten if each.log is None]
    yield from _by_topic(not_appended, _restart, clients, server, _SHARE_TOOL)
    yield from _by_topic(clients.ahead, _return_to_log, clients, server, _SHARE_TOOL)
    yield from _restore_unreachable(clients.unreachable, server)


def _set_group(offset: "OffsetOfGroup") -> _Action:
    """A consumer whose committed offset is outside the log falls back to auto.offset.reset, which may skip or repeat everything. For a
    group below the log start, the unread records begin there. A group beyond the log end has read everything that is left, but nothing that
    producers append from the log end on, perhaps before the reset."""
    from kseg.internal_topics.groups.group_results import BELOW_LOG_START

    is_below = offset.status == BELOW_LOG_START
    place = "--to-earliest" if is_below else f"--to-offset {offset.log_end_offset}"
    why = (
        f"With the broker running and the group's consumers stopped, preview where {visible(offset.group)} would "
        f"resume in {offset.topic}; then replace --dry-run with --execute."
    )
    return why, f"--reset-offsets {place} --dry-run"


def _delete_former(offset: "OffsetOfGroup") -> _Action:
    """The coordinator that was to delete the offsets with the topic was down then, or its log has lost that."""
    why = (
        f"{visible(offset.group)} committed offsets in a deleted topic {offset.topic}. Consumers of the classic protocol continue there in "
        "the topic of this name today, and skip or repeat its records: with the broker running, before they start, delete the offsets."
    )
    return why, "--delete-offsets"


def _delete_when_recreated(offset: "OffsetOfGroup") -> _Action:
    why = (
        f"{visible(offset.group)} committed offsets in {offset.topic}, which was deleted. If a topic of this name is created again, consumers "
        "of the classic protocol continue there in it, and skip or repeat its records: then delete the offsets before they start "
        "(until then, a broker refuses that)."
    )
    return why, "--delete-offsets"


def _begin_anew(partition: "StatelessPartition") -> _Action:
    """Kafka's tool creates the lost state of a share group. It accepts no offset, only an end of the log or a time, and only for a group
    without members."""
    why = (
        f"The share coordinator has lost the progress of {visible(partition.group)} in {partition.topic}, and its members get no record there. "
        "With the broker running and all of them stopped for a minute, preview a new beginning; then replace --dry-run with --execute. "
        "--to-earliest delivers everything again; --to-latest skips what was not delivered yet, and --to-datetime lies between them."
    )
    return why, "--reset-offsets --to-earliest --dry-run"


def _restart(state: "ForgottenState") -> _Action:
    """For states that their group's coordinator does not know, and whose records no step appends. The tool creates the group, but the share
    coordinator refuses to reset a state of a later epoch; it deletes such a state with the group (observed with 4.3.1)."""
    why = (
        f"The group coordinator has lost what it knew of share group {visible(state.group)}: members that join begin where "
        f"share.auto.offset.reset says in {state.topic}, or get no record there. With the broker running and all of them stopped for a minute, "
        "preview a new beginning; then replace --dry-run with --execute. --to-earliest delivers everything again; --to-latest skips what was "
        "not delivered yet, and --to-datetime lies between them. If it fails with FencedStateEpochException, delete the group with --delete, "
        "and repeat this for each of its topics."
    )
    return why, "--reset-offsets --to-earliest --dry-run"


def _return_to_log(state: "ShareStateOfGroup") -> _Action:
    """For a state that is ahead of the log. What is appended before the reset cannot be told from what was lost."""
    why = (
        f"For {visible(state.group)}, records beyond the log end of {state.topic} count as delivered: it never gets what producers append at "
        "their offsets. With the broker running, before they append, and all members of the group stopped for a minute, preview a new "
        "beginning; then replace --dry-run with --execute. --to-latest skips what was not finished, --to-earliest delivers everything "
        "again, and --to-datetime lies between them."
    )
    return why, "--reset-offsets --to-latest --dry-run"


def _by_topic(
    found: "Sequence[O]",
    action: "Callable[[O], _Action]",
    clients: Clients,
    server: str,
    tool: str = "kafka-consumer-groups.sh",
    *,
    is_due: bool = True,
) -> Iterator[NextStep]:
    """One step for the partitions of a group in a topic for which the action is the same."""
    partitions: dict[tuple[str, str, _Action], list[int]] = {}
    for each in found:
        partitions.setdefault((each.group, each.topic, action(each)), []).append(each.partition)
    shown = shown_of(len(partitions), _LISTED)
    for (group, topic, (why, options)), numbers in [*partitions.items()][:shown]:
        yield NextStep(
            why,
            f"{tool} --bootstrap-server {server} --group {shell_quoted(group)} "
            f"--topic {topic}:{','.join(map(str, sorted(numbers)))} {options}",
            is_due,
        )
    yield from likewise(len(partitions) - shown, "group", command_line("groups", {}, clients.request))


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


def _restore_unreachable(found: "Sequence[OffsetOfGroup]", server: str) -> Iterator[NextStep]:
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
    for number, at in enumerate(range(0, len(names), _IN_A_FILE), 1):
        yield (
            "unreachable-offsets.csv" if number == 1 else f"unreachable-offsets-{number}.csv",
            names[at : at + _IN_A_FILE],
        )


def _groups(names: Sequence[str]) -> str:
    noun = plural("group") if len(names) > 1 else "group"
    return f"{noun} {visible(listed(names, _NAMED))}"
