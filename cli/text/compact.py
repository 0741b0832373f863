"""The text of `compact`: what is removed from a log, what stays, and why."""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.report import GOOD, Line
from kseg.cli.run_summary import RunSummary
from kseg.cli.text.amounts import size_words
from kseg.cli.text.change_report import ChangeReport, Stake, incomplete_words
from kseg.cli.text.plan_words import carried_words, room_words, settings_words, undo_words
from kseg.segment import layout as L
from kseg.segment.counted import counted, listed
from kseg.segment.findings import ERROR, WARNING
from kseg.segment.moments import moment
from kseg.segment.terminal import shell_quoted, shown_path, visible

Values = Mapping[str, Any]

_SETTINGS = (
    "cleanup.policy",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "internal.segment.bytes",
    "segment.bytes",
    "segment.index.bytes",
    "index.interval.bytes",
    "producer.id.expiration.ms",
)
_OFFSETS_SHOWN = 3
_LOG = L.LOG_SUFFIX + L.CLEANED_SUFFIX


def compact_words(values: Values) -> Iterator[str]:
    """One line for a new segment, a horizon or a key, a paragraph for a result."""
    match values.get("type"):
        case "step":
            if values["do"] == "write" and str(values["file"]).endswith(_LOG):
                name = str(values["file"]).removesuffix(L.CLEANED_SUFFIX)
                yield f"  {name}: {counted(values['size'], 'byte')}, {visible(str(values['why']))}"
        case "horizon":
            yield (
                f"  {counted(values['tombstones'], 'tombstone')} may go at {moment(values['delete_horizon_ms'])}, "
                f"in {values['words']}"
            )
        case "key":
            shown = visible(str(values["key"]))
            yield f"  key {shown}: {counted(values['bytes'], 'byte')} in {counted(values['records'], 'old value')}"
        case "result" if "log_dir" in values:
            yield from _log_dir(values)
        case "result":
            yield from _result(values)
        case _:
            yield visible(str(values))


def is_due(values: Values) -> bool:
    """Whether something remains to be done after this row: a plan that was not carried out, damage that was skipped."""
    if values.get("type") != "result":
        return False
    is_change = "log_dir" in values or bool(values.get("steps"))
    return bool(values.get("groups_skipped")) or (is_change and not values.get("applied"))


def _result(values: Values) -> Iterator[str]:
    name = shown_path(str(values["partition"]))
    if not values["passes"]:
        yield f"{name}: {_idle(values)}"
    else:
        before, after = values["bytes_before"], values["bytes_after"]
        done = f"copied to {shown_path(str(values['output']))}, " if values["output"] else ""
        verb = "compacted" if values["applied"] or done else "a compaction is due"
        if not values["steps"]:
            verb = "nothing would change"
        yield (
            f"{name}: {done}{verb}: {counted(before, 'byte')} in {counted(values['segments_before'], 'segment')} to "
            f"{counted(after, 'byte')} in {counted(values['segments_after'], 'segment')}"
        )
        yield from _records(values)
    yield from settings_words(values, _SETTINGS)
    yield from room_words(values)
    yield from undo_words(values)


def _idle(values: Values) -> str:
    if values["steps"]:
        return "the active segment is rolled, nothing else is to be cleaned"
    if not values["dirty_bytes"]:
        return f"nothing to clean below offset {values['first_uncleanable_offset']} ({values['held_by']})"
    return f"not due: {values['dirty_ratio']:.0%} of its bytes are dirty"


def _records(values: Values) -> Iterator[str]:
    yield (
        f"  {values['records_before']:,} records to {values['records_after']:,}: "
        f"{values['superseded_records']:,} replaced by later ones, {values['aborted_records']:,} of aborted transactions, "
        f"{counted(values['tombstones_expired'], 'expired tombstone')}, "
        f"{counted(values['markers_removed'], 'expired marker')}, {values['invalid_records']:,} without key; "
        f"{counted(values['live_keys'], 'live key')}"
    )
    yield (
        f"  stay: {counted(values['tombstones_kept'], 'tombstone')}, {counted(values['markers_kept'], 'marker')} "
        f"({values['markers_stamped']:,} may go later), {counted(values['batches_emptied'], 'empty batch')}"
    )
    held_by = "damage" if values["groups_skipped"] else values["held_by"]
    yield (
        f"  {values['dirty_ratio']:.0%} dirty from offset {values['first_dirty_offset']}; clean up to "
        f"{values['next_dirty_offset']} ({held_by}) in {counted(values['passes'], 'pass')}"
    )


def _log_dir(values: Values) -> Iterator[str]:
    noted = [f"{name} {offset}" for name, offset in values["next_dirty_offsets"].items()]
    offsets = listed(noted, _OFFSETS_SHOWN, "partition")
    verb = "noted" if values["applied"] else "to be noted"
    yield f"{shown_path(str(values['log_dir']))}: first dirty offsets {verb}: {offsets or 'none'}"
    yield from carried_words(values)
    if values.get("journal"):
        yield f"  undo all with: kseg undo {shell_quoted(str(values['journal']))}"


class CompactReport(ChangeReport):
    """Totals of bytes and records, and a line for each partition that is compacted."""

    def __init__(self) -> None:
        super().__init__(compact_words)
        self._due = self._applied = self._skipped = 0
        self._bytes_before = self._bytes_after = self._records_before = self._records_after = 0

    def settings(self, values: Values) -> str:
        return "".join(settings_words(values, _SETTINGS)).strip()

    def total(self, values: Values) -> None:
        self._skipped += bool(values["groups_skipped"])
        if not values["steps"]:
            return
        self._due += 1
        self._applied += bool(values["applied"])
        if values["passes"]:
            self._bytes_before += values["bytes_before"]
            self._bytes_after += values["bytes_after"]
            self._records_before += values["records_before"]
            self._records_after += values["records_after"]

    def line(self, values: Values) -> str:
        damaged = "damage holds back a part of it" if values["groups_skipped"] else ""
        if not values["steps"]:
            return damaged
        if not values["passes"]:
            return _idle(values)
        verb = "compacted" if values["applied"] or values["output"] else "a compaction is due"
        words = (
            f"{verb}: {size_words(values['bytes_before'])} in {counted(values['segments_before'], 'segment')} to "
            f"{size_words(values['bytes_after'])} in {counted(values['segments_after'], 'segment')}, "
            f"{values['records_before']:,} records to {values['records_after']:,}"
        )
        return f"{words}; {damaged}" if damaged else words

    def stake(self, values: Values) -> Stake:
        if not values["steps"] or not values["passes"]:
            return 0, 0
        return values["bytes_before"] - values["bytes_after"], values["bytes_before"]

    def alike(self, values: Values) -> str:
        if not values["passes"] and not values["dirty_bytes"]:
            return f"nothing to clean ({values['held_by']})"
        return "not due by its dirty ratio" if not values["passes"] else "nothing would change"

    def is_unchanged(self, values: Values) -> bool:
        return not values["steps"]

    def verdict(self, summary: RunSummary) -> Line:
        partitions = counted(self.partitions, "compacted partition")
        if summary.failures:
            # not "of N partitions": those that failed are of compacted topics, too, but not counted in N
            done = f"{counted(self._applied, 'partition')} compacted"
            if not self._applied:
                done = (
                    f"a compaction is due in {counted(self._due, 'partition')}"
                    if self._due
                    else f"nothing to compact in {partitions}"
                )
            return Line(incomplete_words(summary, done if self.partitions else ""), ERROR)
        if not self._due:
            return Line(f"NOTHING TO COMPACT in {partitions}", GOOD)
        # stamped delete horizons lengthen batches
        saved = self._bytes_before - self._bytes_after
        gain = (
            f"{size_words(self._bytes_before)} to {size_words(self._bytes_after)} "
            f"({size_words(abs(saved))} {'less' if saved >= 0 else 'more'}), "
            f"{self._records_before:,} records to {self._records_after:,}"
        )
        if self._applied:
            return Line(f"COMPACTED: {self._applied:,} of {partitions}, {gain}", GOOD)
        return Line(f"DUE: {self._due:,} of {partitions}, {gain}", WARNING)
