"""The text of `groups`: the verdict, lagging groups, groups that will not resume where they stopped, deleted offsets, and rewinds."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from kseg.cli.group_evidence import GroupEvidence
from kseg.cli.report import GOOD, VERBOSE_SHOWS_ALL, Line, Report
from kseg.cli.run_summary import RunSummary
from kseg.cli.text.columns import TextColumn, aligned
from kseg.cli.text.group_words import member_words, number_or_dash, rewind_words, second_or_dash
from kseg.internal_topics.groups.group_results import (
    BELOW_LOG_START,
    BEYOND_LOG_END,
    TOPIC_DELETED,
    TOPIC_RECREATED,
    UNREACHABLE,
)
from kseg.internal_topics.groups.groups import GroupsOptions
from kseg.internal_topics.groups.share_rows import FORGOTTEN, NO_STATE
from kseg.internal_topics.load_findings import TRUNCATED
from kseg.segment.counted import counted, listed, shown_of
from kseg.segment.diagnosis import UnusableGroups
from kseg.segment.findings import ERROR, INFO, WARNING, Finding
from kseg.segment.moments import moment
from kseg.segment.terminal import shell_quoted, shell_word, visible
from kseg.segment.values import dataclass

Values = Mapping[str, Any]

_GROUPS_SHOWN, _PARTITIONS_SHOWN, _SHOWN = 20, 40, 5
_NAMED = 20  # groups in a command
_AHEAD = "ahead-of-log"  # a share group that is beyond the log end is not reset
_PROBLEMS = {
    BEYOND_LOG_END: "beyond the log end: a consumer that starts there resets to where auto.offset.reset says",
    BELOW_LOG_START: "below the log start: a consumer that starts there resets to where auto.offset.reset says",
    UNREACHABLE: "in a partition of __consumer_offsets where a starting broker does not look for the group: its consumers start where auto.offset.reset says",
    NO_STATE: "of share groups without a state in the partition of __share_group_state where a broker looks for it: their members get no record",
    FORGOTTEN: "of share groups whose records in __consumer_offsets are lost: members that join begin where share.auto.offset.reset says, or get no record",
    _AHEAD: "of share groups with records as delivered that are beyond the log end: their members never get what is appended there",
    TOPIC_DELETED: "for a topic that was deleted",
    TOPIC_RECREATED: "for a deleted topic of the same name as one of today: consumers of the classic protocol continue there, and skip or repeat its records",
}


@dataclass(slots=True)
class _Group:
    """The rows of one group. lag: summed over its partitions, None if none is known. undescribed: why no broker describes it."""

    name: str
    type: str = ""
    state: str = ""
    members: int = 0
    partitions: int = 0
    lag: int | None = None
    committed_ms: int | None = None
    undescribed: str | None = None
    notes: dict[str, int] = field(default_factory=dict)

    def add(self, lag: int | None, time_ms: int | None) -> None:
        self.partitions += 1
        if lag is not None:
            self.lag = lag + (self.lag or 0)
        if time_ms is not None and time_ms >= 0:
            self.committed_ms = max(time_ms, self.committed_ms or 0)


class GroupsReport(Report):
    """A `Report` with a line for each group, those with the largest lag first; for a single group with its partitions. columns:
    of the terminal, None for no limit."""

    def __init__(self, evidence: GroupEvidence, options: GroupsOptions, columns: int | None) -> None:
        super().__init__()
        self._evidence = evidence
        self._options = options
        self._columns = columns
        self._groups: dict[str, _Group] = {}
        self._partitions: list[Values] = []  # the first ones
        self._members: list[Values] = []  # likewise
        self._worst: tuple[int, str, str] | None = None  # lag, partition, group
        self._problems: dict[str, list[str]] = {}
        self._problem_counts: dict[str, int] = {}
        self._gone: list[tuple[str, int]] = []
        self._deleted_offsets = self._unknown_offsets = 0
        self._pending: dict[int, int] = {}
        self._rewinds: list[Values] = []
        self._missing: list[Values] = []
        self._cut = 0  # findings about logs that a starting broker truncates
        self._cut_logs: set[str] = set()
        self._unusable = 0  # groups that no client of their protocol can use
        self._disabled = 0  # findings about them

    def finding(self, finding: Finding) -> None:
        if finding.id == TRUNCATED:
            self._cut += 1
            self._cut_logs.add(os.path.dirname(finding.path))
        if isinstance(finding.diagnosis, UnusableGroups):
            self._disabled += 1
            self._unusable += len(finding.diagnosis.groups)
        super().finding(finding)

    def row(self, values: Values) -> None:
        match values.get("type"):
            case "group":
                group = self._of(values)
                group.type, group.state = values["group_type"], values["state"]
                group.members = values["members"]
                group.undescribed = values.get("undescribed")
            case "member":
                if len(self._members) <= _GROUPS_SHOWN:
                    self._members.append(values)
            case "offset" | "share_offset":
                self._offset(values)
            case "pending_offset":
                self._pending[values["producer_id"]] = self._pending.get(values["producer_id"], 0) + 1
            case "tombstone" if values["topic"] is None:
                self._gone.append((str(values["group"]), values["timestamp"]))
            case "tombstone":
                self._deleted_offsets += 1
            case "unknown_offset":
                self._unknown_offsets += 1
            case "rewind":
                self._rewinds.append(values)
            case "missing_group":
                self._missing.append(values)

    def _of(self, values: Values) -> _Group:
        name = str(values["group"])
        if name not in self._groups:
            self._groups[name] = _Group(name)
        return self._groups[name]

    def _offset(self, values: Values) -> None:
        lag, group = values["lag"], self._of(values)
        is_share, status = values["type"] == "share_offset", values.get("status")
        if is_share and status == UNREACHABLE:  # beside the row of the coordinator that has no state
            return
        group.add(lag, values["timestamp"] if is_share else values["commit_timestamp"])
        if is_share and not group.type:
            group.type = "share"
        if len(self._partitions) <= _PARTITIONS_SHOWN:
            self._partitions.append(values)
        place = f"{values['topic'] or values.get('topic_id')}-{values['partition']}"
        if lag is not None and (self._worst is None or lag > self._worst[0]):
            self._worst = lag, place, group.name
        if is_share and status == BEYOND_LOG_END:
            status = _AHEAD
        if status in _PROBLEMS:
            group.notes[status] = group.notes.get(status, 0) + 1
            self._problem_counts[status] = self._problem_counts.get(status, 0) + 1
            first = self._problems.setdefault(status, [])
            if len(first) <= _SHOWN:
                first.append(f"{group.name} {place}" + ("" if is_share else f" at {values['offset']}"))

    # --- printing

    def opening(self, summary: RunSummary) -> Iterator[Line]:
        yield self._verdict(summary)
        yield from self._found.lines(ERROR, WARNING)
        yield from self._missing_lines()
        if len(self._groups) == 1:
            yield from map(Line, self._one_group())
        elif self._groups:
            yield from map(Line, self._table())
        for status, words in _PROBLEMS.items():
            if status in self._problems:
                yield Line(self._problem_line(status, words))
        yield from map(Line, self._deletions())
        yield from map(Line, self._rewind_lines(summary))
        yield from self._found.lines(INFO)

    def closing(self, _summary: RunSummary) -> Iterator[Line]:
        evidence = self._evidence
        count, here = evidence.count_given(self._groups), len(evidence.offsets_partitions)
        if count is None and here:
            yield Line(
                f"{counted(here, 'partition')} of __consumer_offsets under PATH: how many there are is "
                "not known without a metadata log, and other groups may be in others"
            )
        elif count is not None and here < count:
            yield Line(
                f"{here:,} of {counted(count, 'partition')} of __consumer_offsets under PATH: other groups may be in the others"
            )
        if evidence.passed_over:
            others = counted(len(evidence.passed_over), "replica")
            yield Line(f"{others} of the same partitions not read, because others are more recent")
        if self._options.at_ms is not None:
            words = f"as of {moment(self._options.at_ms)}; what compaction removed since is not seen"
            if self._unknown_offsets:
                words += f": {counted(self._unknown_offsets, 'partition')} committed later and perhaps before"
            yield Line(words)

    def reset_words(
        self, path: str, offsets: Sequence[tuple[str, str, int, int]], asked: Sequence[str]
    ) -> str:
        """The number of lines written, and the command that uses the file."""
        if not offsets:
            return f"no offset to reset: {path} is empty"
        named = asked or tuple(dict.fromkeys(group for group, *_ in offsets))
        groups = " ".join(f"--group {shell_word(name)}" for name in named)
        but = ""
        if len(named) > _NAMED:  # --all-groups resets only groups that the broker has
            groups, but = "--all-groups", " (--group NAME for each that the broker no longer has)"
        return (
            f"{counted(len(offsets), 'offset')} in {path}; with every member of the group stopped{but}: kafka-consumer-groups.sh "
            f"--bootstrap-server HOST:PORT {groups} --reset-offsets --from-file {shell_quoted(path)} --execute"
        )

    def _verdict(self, summary: RunSummary) -> Line:
        groups = self._groups.values()
        states: dict[str, int] = {}
        for group in groups:
            if group.state:
                states[group.state] = states.get(group.state, 0) + 1
        by_state = ", ".join(
            f"{count:,} {state}" for state, count in sorted(states.items(), key=lambda each: -each[1])
        )
        words = counted(len(groups), "group") + (f" ({by_state})" if by_state else "")
        if self._worst is not None and self._worst[0] > 0:
            lagging = sum(1 for group in groups if (group.lag or 0) > 0)
            lag, place, name = self._worst
            words += (
                f"; {lagging:,} behind, most {visible(name)}: {counted(lag, 'record')} in {visible(place)}"
            )
        elif self._worst is not None:
            words += "; none is behind"
        failed = len(summary.failed_paths)
        if summary.errors > self._cut + self._disabled or failed:
            what = f"{counted(summary.errors, 'error')}" + (f", {failed:,} not readable" if failed else "")
            return Line(f"LOAD FAILS: {what}; {words}", ERROR)
        if self._cut:
            logs = counted(len(self._cut_logs), "log")
            return Line(
                f"LOAD INCOMPLETE: a broker that starts truncates {logs}; as the logs are now: {words}",
                ERROR,
            )
        if self._missing and not groups:
            return Line("NOT FOUND", ERROR)
        if self._unusable:
            unusable = counted(self._unusable, "group")
            return Line(f"LOADED, but {unusable} cannot be used by clients of their protocol: {words}", ERROR)
        bad = sum(self._problem_counts.values())
        if bad:
            return Line(f"ATTENTION: {counted(bad, 'unusable offset')}; {words}", WARNING)
        return Line(f"LOADED: {words}", GOOD)

    def _missing_lines(self) -> Iterator[Line]:
        for values in self._missing[:_GROUPS_SHOWN]:
            name = visible(str(values["group"]))
            home, count = values["offsets_partition"], values["offsets_partitions"]
            if values["status"] == "absent":
                words = f"group {name} is absent: __consumer_offsets-{home} has no record of it"
            elif home is None:
                words = f"group {name} is unknown: how many partitions __consumer_offsets has is not known"
            else:
                words = f"group {name} is unknown: its partition __consumer_offsets-{home} (of {count:,}) is not under PATH"
            yield Line(words, WARNING)

    def _table(self) -> Iterator[str]:
        ranked = sorted(self._groups.values(), key=lambda group: (-(group.lag or 0), group.name))
        shown = ranked[: shown_of(len(ranked), _GROUPS_SHOWN)]
        columns = [
            TextColumn("group", [visible(group.name) or '""' for group in shown]),
            TextColumn("type", [group.type or "-" for group in shown], dropped=3),
            TextColumn("state", [group.state or "-" for group in shown]),
            TextColumn("members", [f"{group.members:,}" for group in shown], right=True, dropped=4),
            TextColumn("partitions", [f"{group.partitions:,}" for group in shown], right=True, dropped=5),
            TextColumn("lag", [number_or_dash(group.lag) for group in shown], right=True),
            TextColumn(
                "last commit (UTC)", [second_or_dash(group.committed_ms) for group in shown], dropped=1
            ),
        ]
        yield from aligned(columns, self._columns)
        if len(ranked) > len(shown):
            more = counted(len(ranked) - len(shown), "more group")
            yield f"… and {more} ({VERBOSE_SHOWS_ALL})"

    def _one_group(self) -> Iterator[str]:
        (group,) = self._groups.values()
        state = f", {group.state}" if group.state else ""
        members = counted(group.members, "member")
        yield f"group {visible(group.name)}: {group.type or 'no metadata'}{state}, {members}"
        if group.undescribed is not None:
            yield f"  its coordinator fails to describe it (kafka-streams-groups.sh --describe): {visible(group.undescribed)}"
        most = shown_of(group.members, _GROUPS_SHOWN)
        for member in self._members[:most]:
            yield member_words(member)
        if group.members > most:
            yield f"  … and {counted(group.members - most, 'more member')} ({VERBOSE_SHOWS_ALL})"
        if not self._partitions:
            return
        shown = self._partitions[: shown_of(group.partitions, _PARTITIONS_SHOWN)]
        is_share = any(values["type"] == "share_offset" for values in shown)
        columns = [
            TextColumn(
                "partition",
                [visible(f"{row['topic'] or row.get('topic_id')}-{row['partition']}") for row in shown],
            ),
            TextColumn(
                "start" if is_share else "offset",
                [number_or_dash(row.get("offset", row.get("start_offset"))) for row in shown],
                right=True,
            ),
            TextColumn(
                "log end", [number_or_dash(row["log_end_offset"]) for row in shown], right=True, dropped=2
            ),
            TextColumn("lag", [number_or_dash(row["lag"]) for row in shown], right=True),
        ]
        if is_share:
            columns += [
                TextColumn("in flight", [number_or_dash(row.get("in_flight")) for row in shown], right=True),
                TextColumn("archived", [number_or_dash(row.get("archived")) for row in shown], right=True),
            ]
        columns.append(
            TextColumn(
                "written (UTC)" if is_share else "committed (UTC)",
                [second_or_dash(row.get("commit_timestamp", row.get("timestamp"))) for row in shown],
                dropped=1,
            )
        )
        statuses = ["" if row.get("status") in (None, "ok") else str(row["status"]) for row in shown]
        if any(statuses):
            columns.append(TextColumn("", statuses))
        yield from aligned(columns, self._columns)
        if group.partitions > len(shown):
            yield f"… and {counted(group.partitions - len(shown), 'more partition')} ({VERBOSE_SHOWS_ALL})"

    def _problem_line(self, status: str, words: str) -> str:
        count = self._problem_counts[status]
        first = listed(self._problems[status], _SHOWN, number=count)
        return visible(f"{counted(count, 'offset')} {words} ({first})")

    def _deletions(self) -> Iterator[str]:
        if self._gone:
            newest = sorted(self._gone, key=lambda each: -each[1])
            named = [f"{name} ({moment(time_ms)})" for name, time_ms in newest]
            yield visible(f"{counted(len(newest), 'group')} deleted: {listed(named, _SHOWN)}")
        if self._deleted_offsets:
            yield f"{counted(self._deleted_offsets, 'offset')} deleted (--json names them)"
        if self._pending:
            producers = listed([*map(str, sorted(self._pending))], _SHOWN)
            offsets = counted(sum(self._pending.values()), "offset")
            noun = "producer" if len(self._pending) == 1 else "producers"
            yield f"{offsets} in transactions that are still open, of {noun} {producers}; consumers of the group wait until they end (see kseg transactions)"

    def _rewind_lines(self, summary: RunSummary) -> Iterator[str]:
        if self._rewinds:
            newest = sorted(self._rewinds, key=lambda row: -int(row["timestamp"]))
            most = shown_of(len(newest), _GROUPS_SHOWN)
            yield from map(rewind_words, newest[:most])
            if len(newest) > most:
                yield f"… and {len(newest) - most:,} more times ({VERBOSE_SHOWS_ALL})"
            return
        rewinds = summary.sums.get("rewinds", 0)
        if self._options.with_history:
            yield "no offset went back in what the log still has"
        elif rewinds:
            yield f"offsets went back {counted(rewinds, 'time')} in what the log still has (--history lists them)"
