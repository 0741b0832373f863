"""The text of `doctor` on one page: the verdict, the machine, a broker's next start, damage and its cost, other problems, the steps.

Every section has at most a dozen lines; empty sections are left out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kseg.change.apply.room import FEW_INODES
from kseg.cli.report import GOOD, VERBOSE_SHOWS_ALL, Line, Report
from kseg.cli.run_summary import RunSummary
from kseg.cli.text.amounts import size_words
from kseg.cli.text.broker_start import VERSION, broker_start_words
from kseg.cli.text.damage_costs import DamageCosts
from kseg.cli.text.verify import ErrorPlaces, looked_at_words
from kseg.internal_topics.groups.share_rows import FORGOTTEN
from kseg.segment.counted import counted, listed, shown_of
from kseg.segment.findings import ERROR, WARNING, Finding
from kseg.segment.moments import moment
from kseg.segment.partition.names import CONSUMER_OFFSETS_TOPIC
from kseg.segment.terminal import shown_path, visible

Values = Mapping[str, Any]

_SHOWN = 8
_NAMED_DIRS = 3
_FINDINGS_ROOM = 26  # infos are not shown
_STARTS = {
    "starts": "a broker starts",
    "starts-with-offline-log-dirs": "a broker starts without some of its data directories",
    "does-not-start": f"a {VERSION} broker does not start",
}


class DoctorReport(Report):
    """A `Report` on the rows and findings of an examination. now_ms: the time of the examination."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(_FINDINGS_ROOM)
        self._now_ms = now_ms
        self._rows: dict[str, list[Values]] = {}
        self._counts: dict[str, int] = {}
        self._places = ErrorPlaces()
        self._costs = DamageCosts()

    def finding(self, finding: Finding) -> None:
        super().finding(finding)
        self._places.finding(finding)

    def row(self, values: Values) -> None:
        kind = str(values.get("type"))
        if kind == "verified":
            self._places.partitions += values.get("kind") == "partition"
            return
        if kind == "transaction" and values["status"] != "hanging":
            kind = "lost_commit"
        if kind == "damage":
            self._places.add_damaged(values["errors"])
            self._costs.add(values)
            return
        self._counts[kind] = self._counts.get(kind, 0) + 1
        kept = self._rows.setdefault(kind, [])
        if len(kept) <= _SHOWN or kind in ("step", "leftovers", "log_dir", "retention"):
            kept.append(values)

    def opening(self, summary: RunSummary) -> Iterator[Line]:
        yield self._verdict(summary)
        yield from _section("broker", [*self._broker(), *self._disks()])
        yield from _section("next start", self._starts())
        yield from _section("what retention deletes after it", self._retention())
        yield from _section("committed offsets that expire after it", self._expiring())
        yield from _section(
            "compacted topics that no cleaner cleans", self._first("uncleaned", _uncleaned_words, WARNING)
        )
        yield from _section("what is wrong", self._found.lines(ERROR, WARNING))
        yield from _section("what the damage costs", self._costs.lines())
        yield from _section("hanging transactions", self._first("transaction", _hanging_words))
        yield from _section(
            "committed transactions that a coordinator aborts", self._first("lost_commit", _lost_commit_words)
        )
        yield from _section("groups that do not continue where they stopped", self._stranded())
        yield from _section("not in use", self._leftovers())

    def closing(self, summary: RunSummary) -> Iterator[Line]:
        yield Line(looked_at_words(summary))
        steps = self._rows.get("step", ())
        if not steps and summary.interrupted:
            yield Line("what to do is not known: the examination was interrupted")
        elif not steps and not summary.failed_paths:
            yield Line("nothing to do")
        elif steps:
            yield Line("what to do:")
        for step in steps:
            yield Line(f"{step['number']:3}. {visible(str(step['why']))}")
            yield Line(f"       {step['command']}")

    # --- the verdict

    def _verdict(self, summary: RunSummary) -> Line:
        starts = {str(start["outcome"]) for start in self._rows.get("broker-start", ())}
        start = next((words for outcome, words in _STARTS.items() if outcome in starts), "")
        if start == _STARTS["starts"] and any(
            each["partitions_unread"] for each in self._rows.get("broker-start", ())
        ):
            start += ", unless it fails to load what could not be examined"
        if "does-not-start" in starts:
            start = _STARTS["does-not-start"]
        clauses = [words for words in (start, self._hurt()) if words]
        partitions = self._places.partitions
        where = f" in {counted(partitions, 'partition')}" if partitions else ""
        if summary.errors:
            of_them = self._places.words(summary.errors)
            return Line("; ".join([f"DAMAGED: {counted(summary.errors, 'error')}{of_them}", *clauses]), ERROR)
        if summary.failed_paths:
            failed = f"{summary.targets_failed:,} of {counted(summary.targets, 'target')}"
            return Line("; ".join([f"INCOMPLETE: {failed} could not be examined", *clauses]), ERROR)
        warned = f", {counted(summary.warnings, 'warning')}" if summary.warnings else ""
        if summary.sums.get("files") == 0:
            return Line("; ".join([f"NOTHING VERIFIED{warned}", *clauses]), WARNING)
        if self._hurt() or "does-not-start" in starts:
            return Line("; ".join([f"SOUND FILES{where}{warned}", *clauses]), WARNING)
        return Line("; ".join([f"SOUND: no errors{where}{warned}", *clauses]), GOOD)

    def _hurt(self) -> str:
        """Problems of clients that occur even if all files are valid."""
        words = []
        if hanging := self._counts.get("transaction", 0):
            words.append(f"{counted(hanging, 'hanging transaction')}")
        if lost := self._counts.get("lost_commit", 0):
            words.append(f"{counted(lost, 'committed transaction')} that a coordinator aborts")
        if stranded := self._counts.get("offset", 0):
            words.append(counted(stranded, "unusable committed offset"))
        if uncleaned := self._counts.get("uncleaned", 0):
            words.append(f"{counted(uncleaned, 'log')} that no cleaner cleans")
        if stateless := self._counts.get("share_offset", 0):
            words.append(
                f"{counted(stateless, 'partition')} of share groups that do not continue where they stopped"
            )
        return ", ".join(words)

    # --- the machine

    def _broker(self) -> Iterator[Line]:
        for node in self._rows.get("node", ()):
            version = node["metadata_version"]
            wrote = "" if version is None else f", metadata.version {version}"
            last = (
                ""
                if node["metadata_timestamp"] is None
                else f", last heard at {moment(node['metadata_timestamp'])}"
            )
            yield Line(visible(f"{_identity(node['node_id'], node['cluster_id'])}{wrote}{last}"))
        log_dirs = self._rows.get("log_dir", ())
        if not self._rows.get("node"):
            yield from map(Line, _identities(log_dirs, self._rows.get("broker-start", ())))
        running = [each for each in log_dirs if each["broker_running"]]
        if running:
            process = next((each["broker_process_id"] for each in running if each["broker_process_id"]), None)
            number = "" if process is None else f" (process {process})"
            yield Line(
                f"A BROKER IS RUNNING here{number}: findings about its files may be out of date",
                WARNING,
            )
        elif log_dirs:
            unclean = [str(each["log_dir"]) for each in log_dirs if each["clean_shutdown"] is False]
            how = "clean" if not unclean else f"not clean ({visible(_listed(unclean))})"
            is_known = any(each["clean_shutdown"] is not None for each in log_dirs)
            yield Line(f"no broker is running{f'; the last shutdown was {how}' if is_known else ''}")

    def _disks(self) -> Iterator[Line]:
        log_dirs = self._rows.get("log_dir", ())
        for values in log_dirs[: shown_of(len(log_dirs), _SHOWN)]:
            mount = ""
            if values["filesystem"] is not None:
                options = ",".join(values["mount_options"][:4])
                mount = f"; {values['filesystem']} at {values['mount_point']} ({options})"
            total = values["total_bytes"]
            if total is None:
                yield Line(
                    visible(f"{shown_path(values['log_dir'])}: the file system does not answer{mount}"),
                    WARNING,
                )
                continue
            free = values["free_bytes"]
            share = 100 * free // total if total else 0
            inodes = values["free_inodes"]
            has_few = inodes is not None and inodes < FEW_INODES
            is_scarce = share < 5 or values["read_only"] or has_few
            files = (
                f", and {counted(inodes, 'more file') if inodes else 'no file'} can be created"
                if has_few
                else ""
            )
            words = f"{shown_path(values['log_dir'])}: {size_words(free)} of {size_words(total)} free ({share} %){files}{mount}"
            yield Line(visible(words), WARNING if is_scarce else "")
        yield from _more(len(log_dirs))

    # --- problems

    def _starts(self) -> Iterator[Line]:
        for start in self._rows.get("broker-start", ()):
            tone = ERROR if start["outcome"] == "does-not-start" else ""
            first, *more = broker_start_words(start)
            yield from (Line(first, tone), *map(Line, more))

    def _retention(self) -> Iterator[Line]:
        found = self._rows.get("retention", ())
        for values in found:
            emptied, examples = values["partitions_emptied"], values["examples"]
            more = f" and {emptied - len(examples):,} more" if emptied > len(examples) else ""
            everything = f"; everything in {shown_path(', '.join(examples))}{more}" if emptied else ""
            certain, most = values["remote_segments"], values["remote_segments_at_most"]
            there = _remote_words(certain, most, values["remote_bytes"])
            words = (
                f"{shown_path(values['log_dir'])}: {counted(values['segments'], 'segment')} ({size_words(values['bytes'])}){there} "
                f"of {counted(values['partitions'], 'partition')}{everything}"
            )
            yield Line(visible(words), WARNING if emptied or most > certain else "")
        if any(values["assumes_default"] for values in found):
            yield Line(
                "with Kafka's default of 7 days where no limit is known (--server-properties gives the broker's)"
            )

    def _first(self, kind: str, words: Callable[[Values], str], tone: str = "") -> Iterator[Line]:
        """A line for each of the first rows of a kind, and the number of the others."""
        count = self._counts.get(kind, 0)
        for values in self._rows.get(kind, ())[: shown_of(count, _SHOWN)]:
            yield Line(visible(words(values)), tone)
        yield from _more(count)

    def _expiring(self) -> Iterator[Line]:
        yield from self._first("expiring_offsets", _expiring_words, WARNING)
        if any(values["assumes_default"] for values in self._rows.get("expiring_offsets", ())):
            yield Line("with Kafka's default of 7 days (--server-properties gives the broker's)")

    def _stranded(self) -> Iterator[Line]:
        yield from self._first("offset", _stranded_words)
        yield from self._first("share_offset", _stateless_words)

    def _leftovers(self) -> Iterator[Line]:
        by_kind: dict[str, tuple[int, int]] = {}
        for values in self._rows.get("leftovers", ()):
            count, held = by_kind.get(values["kind"], (0, 0))
            by_kind[values["kind"]] = count + values["count"], held + values["bytes"]
        for kind, (count, held) in by_kind.items():
            yield Line(f"{kind}: {count:,}, {size_words(held)}")


def _expiring_words(values: Values) -> str:
    lag = "" if values["lag"] is None else f", {counted(values['lag'], 'record')} behind"
    only_if = ", if only consumers of other topics come back" if values["needs_return"] else ""
    return (
        f"{values['group']}: {counted(values['offsets'], 'offset')} in {listed(values['topics'], _NAMED_DIRS)}{lag}, "
        f"unused since {moment(values['unused_since'])}{only_if}"
    )


def _uncleaned_words(values: Values) -> str:
    why = {
        "negative-timestamps": "the cleaner fails at records with negative timestamps",
        "future-timestamps": "the cleaner waits for timestamps in the future (min.compaction.lag.ms)",
        "last-stable-offset": f"an open transaction, or the high watermark, holds back everything from offset {values['last_stable_offset']} on",
    }.get(values["cause"], "why is not seen here")
    return (
        f"{shown_path(values['partition'])}: {size_words(values['dirty_bytes'])} of {size_words(values['bytes'])} since "
        f"{moment(values['dirty_since'])}, from offset {values['first_dirty_offset']} on; {why}"
    )


def _hanging_words(values: Values) -> str:
    is_of_groups = values["topic"] == CONSUMER_OFFSETS_TOPIC
    blocked = (
        "consumers of its groups wait for it" if is_of_groups else "read_committed consumers are blocked"
    )
    return (
        f"{values['topic']}-{values['partition']}: from offset {values['start_offset']}, producer {values['producer_id']}, last written at "
        f"{moment(values['last_timestamp'])}; {blocked}"
    )


def _lost_commit_words(values: Values) -> str:
    when = "as soon as it runs" if values["deadline"] is None else f"at {moment(values['deadline'])}"
    return (
        f"{values['topic']}-{values['partition']}: offsets {values['start_offset']} to {values['last_offset']}, producer "
        f"{values['producer_id']}; {when}"
    )


def _stranded_words(values: Values) -> str:
    falls_back = "its consumers fall back to auto.offset.reset"
    words = {
        "beyond-log-end": f"beyond the log end {values['log_end_offset']}; {falls_back}",
        "below-log-start": f"below the log start {values['log_start_offset']}; {falls_back}",
        "topic-deleted": "of a deleted topic; consumers of the classic protocol continue there once a topic of this name is created",
        "topic-recreated": "of a deleted topic of this name; consumers of the classic protocol continue there in the topic of today",
    }.get(
        values["status"],
        f"in a partition of __consumer_offsets where its coordinator does not look; {falls_back}",
    )
    return f"{values['group']}: {values['topic']}-{values['partition']} at offset {values['offset']}, {words}"


def _stateless_words(values: Values) -> str:
    place = f"{values['topic']}-{values['partition']}"
    problem = f"the state of {place} is lost; members of this share group get no record"
    if values["status"] == FORGOTTEN:
        problem = f"its coordinator has lost that this share group had progress in {place}; members that join begin anew, or get no record"
    elif values["status"] == "beyond-log-end":
        problem = f"the log of {place} ends at {values['log_end_offset']}, but offsets below {values['finished_end_offset']} count as delivered"
    return f"{values['group']}: {problem}"


def _identities(log_dirs: Sequence[Values], starts: Sequence[Values]) -> Iterator[str]:
    """The nodes according to meta.properties, for lack of a metadata log."""
    known = dict.fromkeys((each["node_id"], each["cluster_id"]) for each in log_dirs)
    old = {(each["node_id"], each["cluster_id"]) for each in starts if each["from_zookeeper"]}
    for node_id, cluster_id in [*known][:_NAMED_DIRS]:
        if node_id is None and cluster_id is None:
            continue
        is_old = (node_id, cluster_id) in old
        wrote = ", written by a broker with ZooKeeper (Kafka 3.9 or older)" if is_old else ""
        yield visible(f"{_identity(node_id, cluster_id)}{wrote}")


def _identity(node_id: int | None, cluster_id: str | None) -> str:
    whose = "a node" if node_id is None else f"node {node_id}"
    return f"{whose} of {'an unknown cluster' if cluster_id is None else f'cluster {cluster_id}'}"


def _remote_words(certain: int, most: int, size_bytes: int) -> str:
    """The segments that retention deletes in remote storage, the certain ones and all that it may delete."""
    if most > certain:
        return f" and {f'{certain:,} to' if certain else 'up to'} {most:,} in remote storage"
    return f" and {certain:,} in remote storage ({size_words(size_bytes)})" if certain else ""


def _section(title: str, lines: Iterator[Line] | Sequence[Line]) -> Iterator[Line]:
    """A heading and indented lines; nothing if there are none."""
    body = [*lines]
    if body:
        yield Line(f"{title}:")
        yield from (Line(f"  {line.text}", line.tone) for line in body)


def _more(count: int) -> Iterator[Line]:
    shown = shown_of(count, _SHOWN)
    if count > shown:
        yield Line(f"… and {count - shown:,} more ({VERBOSE_SHOWS_ALL})")


def _listed(paths: Sequence[str]) -> str:
    return listed([*map(shown_path, paths)], _NAMED_DIRS)
