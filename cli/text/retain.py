"""The text of `retain`: each segment with its verdict, what other limits would free, and the result."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kseg.cli.report import GOOD, Line
from kseg.cli.run_summary import RunSummary
from kseg.cli.text.amounts import size_words
from kseg.cli.text.change_report import ChangeReport, Stake, incomplete_words
from kseg.cli.text.plan_words import room_words, settings_words, undo_words
from kseg.segment.counted import counted, listed, log_range_words
from kseg.segment.findings import ERROR, WARNING
from kseg.segment.terminal import shown_path, visible

Values = Mapping[str, Any]

_STARTS_SHOWN = 5

CHANGES = ("deleted", "unmarked", "purged", "log_start_moved")  # fields of a result that count changed files
HELD = {  # what --free cannot delete
    "active": "active segments",
    "high-watermark": "above the high watermark",
    "not-copied": "segments that are not known to be in remote storage",
    "cleanup.policy": "topics that are compacted only",
    "policy-unknown": "topics whose cleanup.policy is unknown",
    "internal-topic": "internal topics",
    "set-aside": "the metadata log and directories that were set aside",
    "deleted-directory": "directories of deleted topics, which a broker removes when it starts",
    "unfinished-files": "unfinished files of the cleaner, which a broker removes when it starts",
    "quarantine": "kept in .kseg for `kseg undo`",
    "hard-link": "files with a second name elsewhere (hard links)",
    "unreadable": "partitions that cannot be read",
    "refused": "partitions that need `kseg recover` first",
}
KEPT = {  # by the rule that keeps a segment
    "no-limit": "without a limit",
    "retention.ms": "younger than retention.ms",
    "retention.bytes": "within retention.bytes",
    "future-timestamp": "with timestamps in the future, which retention.ms never reaches",
    "order": "after a segment that stays",
    "high-watermark": "above the high watermark",
    "not-copied": "not known to be in remote storage",
    "cleanup.policy": "whose cleanup.policy does not delete",
    "active": "active",
    "free": "that --free does not need",
}
_SETTINGS = (
    *("cleanup.policy", "retention.ms", "retention.bytes"),
    *("remote.storage.enable", "local.retention.ms", "local.retention.bytes"),
)


def retain_words(values: Values) -> Iterator[str]:
    """One line for a segment, a mark or another limit, a paragraph for a result."""
    match values.get("type"):
        case "segment":
            yield (
                f"  {values['base_offset']:020d}  {values['verdict']:<6}  {values['bytes']:>13,}  "
                f"{values['reason']} ({values['rule']})"
            )
        case "mark":
            yield f"  {shown_path(str(values['file']))}  {values['verdict']}: {values['reason']}"
        case "what_if":
            yield (
                f"  with {values['rule']} {values['value']} ({values['words']}): "
                f"{counted(values['segments'], 'segment')}, "
                f"{counted(values['bytes_freed'], 'byte')} freed, the log starts at {values['log_start_offset']}"
            )
        case "free_topic":
            yield from _free_topic(values)
        case "free":
            yield from _free(values)
        case "result" if "log_dir" in values:
            yield from _log_dir(values)
        case "result":
            yield from _result(values)
        case _:
            yield visible(str(values))


def is_due(values: Values) -> bool:
    """Whether something remains to be done after this row: a plan that was not carried out."""
    if values.get("type") == "free":
        return not values["applied"]
    if values.get("type") != "result" or values["applied"]:
        return False
    return "log_dir" in values or any(values[name] for name in CHANGES)


def _result(values: Values) -> Iterator[str]:
    yield f"{shown_path(str(values['partition']))}: {_goes(values)}{_offset_words(values)}"
    yield from settings_words(values, _SETTINGS)
    yield from room_words(values)
    if values["rolled"]:
        yield "  nothing else would be left, so an empty segment is created at the log end"
    yield from undo_words(values)


def _goes(values: Values, size: Callable[[int], str] = lambda size_bytes: counted(size_bytes, "byte")) -> str:
    """What retention deletes from a partition. size: formats bytes."""
    applied = values["applied"]
    words = []
    if values["deleted"]:
        verb = "marked for deletion" if applied else "to be deleted"
        words.append(f"{counted(len(values['deleted']), 'segment')} of {size(values['bytes_freed'])} {verb}")
    if values["unmarked"]:
        verb = "restored" if applied else "can be restored"
        words.append(f"{counted(len(values['unmarked']), 'segment')} {verb}")
    if values["purged"]:
        verb = "purged" if applied else "to be purged"
        words.append(
            f"{counted(len(values['purged']), 'marked file')} of {size(values['bytes_purged'])} {verb}"
        )
    return ", ".join(words) or "nothing to delete"


def _offset_words(values: Values) -> str:
    if values["log_end_offset"] is None:
        return ""
    return f"; {log_range_words(values['log_start_offset'], values['log_end_offset'])}"


def _log_dir(values: Values) -> Iterator[str]:
    starts_after = [
        f"{shown_path(partition)} {'no entry' if at is None else at}"
        for partition, at in values["log_start_offsets"].items()
    ]
    starts = listed(starts_after, _STARTS_SHOWN, "partition")
    yield f"{shown_path(str(values['log_dir']))}: log start offsets{': ' + starts if starts else ' unchanged'}"
    yield from undo_words(values)


def _free_topic(values: Values) -> Iterator[str]:
    limits = []
    if values["retention_ms"] is not None:
        limits.append(f"retention.ms {values['retention_ms']}")
    if values["retention_bytes"] is not None:
        limits.append(f"retention.bytes {values['retention_bytes']}")
    yield (
        f"  {visible(str(values['topic']))}: {counted(values['segments'], 'segment')} of "
        f"{counted(values['bytes'], 'byte')} in {counted(values['partitions'], 'partition')}; "
        f"equivalent to {' or '.join(limits) or 'no limit, because its timestamps are in the future'}"
    )


def _free(values: Values) -> Iterator[str]:
    where = ", ".join(shown_path(str(path)) for path in values["log_dirs"])
    verb = "were marked" if values["applied"] else "to be marked"
    gone = values["marked_bytes"] + values["chosen_bytes"]
    yield (
        f"{where}: {counted(values['wanted'], 'byte')} to be freed: {values['marked_bytes']:,} in files that are marked already, "
        f"{values['chosen_bytes']:,} in {counted(values['segments'], 'segment')} {verb}"
    )
    if not values["reached"]:
        held = ", ".join(
            f"{words} {values['held'][name]:,}" for name, words in HELD.items() if name in values["held"]
        )
        can = values["freeable_bytes"]
        most = (
            f"at most {counted(can, 'byte')} may be deleted (--free {can})"
            if can
            else "nothing may be deleted"
        )
        yield f"  not possible: {most}"
        yield f"  kept, in bytes: {held or 'nothing else'}"
    after = values["available"] + gone
    if values["purge"]:
        state = "has" if values["applied"] else "would have"
        yield f"  the file system {state} about {counted(after, 'byte')} free then, {values['available']:,} before"
    else:
        yield (
            "  marked files free no space until they are purged (--purge does both; purged files cannot be restored); "
            f"the file system has {counted(values['available'], 'byte')} free"
        )


class RetainReport(ChangeReport):
    """Totals of what is deleted, and a line for each partition that loses segments or marked files."""

    def __init__(self) -> None:
        super().__init__(retain_words)
        self._due = self._applied = 0
        self._segments = self._bytes_freed = self._files_purged = self._bytes_purged = self._restored = 0
        self._kept: dict[str, tuple[int, int]] = {}  # by rule: segments, bytes
        self._files_waiting = self._bytes_waiting = 0

    def row(self, values: Values) -> None:
        if values.get("type") == "mark" and values["verdict"] == "wait":
            self._files_waiting += 1
            self._bytes_waiting += values["bytes"]
        if values.get("type") == "segment" and values["verdict"] == "keep" and values["rule"] in KEPT:
            segments, size_bytes = self._kept.get(values["rule"], (0, 0))
            self._kept[values["rule"]] = segments + 1, size_bytes + values["bytes"]
        super().row(values)

    def totals(self) -> Iterator[str]:
        """What stays, and why."""
        most_first = sorted(self._kept.items(), key=lambda item: -item[1][1])
        kept = (
            f"{counted(segments, 'segment')} of {size_words(size_bytes)} {KEPT[rule]}"
            for rule, (segments, size_bytes) in most_first
        )
        if words := ", ".join(kept):
            yield f"kept: {words}"
        if self._files_waiting:
            files = counted(self._files_waiting, "marked file")
            yield (
                f"waiting: {files} of {size_words(self._bytes_waiting)}, marked so recently that a broker would not delete them yet "
                "(--file-delete-delay-ms 0 does not wait)"
            )

    def is_answer(self, values: Values) -> bool:
        return values.get("type") in ("what_if", "free", "free_topic")

    def total(self, values: Values) -> None:
        if not self.is_unchanged(values):
            self._due += 1
            self._applied += bool(values["applied"])
        self._segments += len(values["deleted"])
        self._restored += len(values["unmarked"])
        self._files_purged += len(values["purged"])
        self._bytes_freed += values["bytes_freed"]
        self._bytes_purged += values["bytes_purged"]

    def line(self, values: Values) -> str:
        return "" if self.is_unchanged(values) else f"{_goes(values, size_words)}{_offset_words(values)}"

    def stake(self, values: Values) -> Stake:
        return values["bytes_freed"] + values["bytes_purged"], 0

    def alike(self, _values: Values) -> str:
        return "nothing to delete"

    def is_unchanged(self, values: Values) -> bool:
        return not any(values[name] for name in CHANGES)

    def settings(self, values: Values) -> str:
        return "".join(settings_words(values, _SETTINGS)).strip()

    def verdict(self, summary: RunSummary) -> Line:
        partitions = counted(self.partitions, "partition")
        words = []
        if self._segments:
            words.append(f"{counted(self._segments, 'segment')} of {size_words(self._bytes_freed)}")
        if self._files_purged:
            words.append(f"{counted(self._files_purged, 'marked file')} of {size_words(self._bytes_purged)}")
        if self._restored:
            words.append(f"{counted(self._restored, 'segment')} restored")
        what = f"{self._due:,} of {partitions}{': ' + ', '.join(words) if words else ''}"
        if summary.failures:
            others = (
                f"{'done' if self._applied else 'due'} in {what}"
                if self._due
                else f"nothing to delete in {partitions}"
            )
            others = others if self.partitions else ""
            return Line(incomplete_words(summary, others), ERROR)
        if not self._due:
            return Line(f"NOTHING TO DELETE in {partitions}", GOOD)
        return Line(f"DONE in {what}", GOOD) if self._applied else Line(f"DUE in {what}", WARNING)
