"""Findings that salvage adds to those of the judgement: what was decided, and what the operator must know of it."""

from collections.abc import Iterable, Iterator, Sequence

from kseg.recovery.salvage.logs import Logs
from kseg.recovery.salvage.overlaps import (
    BELIEVED,
    COPY,
    EPOCH,
    FIRST,
    IN_ORDER,
    ORIGINAL,
    OWN_SEGMENT,
    POSSIBLE,
    Beaten,
)
from kseg.recovery.verify.totals import SHOWN_PER_FILE
from kseg.segment.findings import Finding
from kseg.segment.state.producer import OpenTransaction

_RULES = {
    COPY: "byte for byte the same; the first copy stays",
    EPOCH: "the copy of the higher leader epoch stays",
    OWN_SEGMENT: "the copy in the segment of these offsets stays",
    FIRST: "the first copy stays",
    IN_ORDER: "the copy stays that is in order with those around it",
    ORIGINAL: "the other is a copy of the batch in front of it under another offset",
    POSSIBLE: "the copy stays whose leader epoch is not above that of what follows",
    BELIEVED: "the copy that does not lie behind damage stays",
}


def overlap_findings(logs: Logs, beaten: Sequence[Beaten]) -> Iterator[Finding]:
    """Each range of offsets that was held twice, and which copy goes."""
    for entry in beaten[:SHOWN_PER_FILE]:
        stretch, log = entry.stretch, logs[entry.stretch.log]
        first, last = stretch.first_offset, stretch.last_offset
        message = (
            f"offsets {first} to {last} are held twice: {_RULES[entry.rule]}, in {logs[entry.keeper].name}"
        )
        yield Finding(
            "overlap-resolved",
            log.path,
            message,
            stretch.position,
            stretch.length,
            first,
            last,
            {"rule": entry.rule, "batches": stretch.batches, "kept_in": logs[entry.keeper].name},
        )

    more = len(beaten) - SHOWN_PER_FILE
    if more > 0:
        path = logs[beaten[SHOWN_PER_FILE].stretch.log].path
        yield Finding("overlap-resolved", path, f"{more} more ranges are held twice", numbers={"more": more})


def transaction_findings(
    path: str, cut: Iterable[tuple[OpenTransaction, tuple[int, int]]]
) -> Iterator[Finding]:
    """Transactions that were open where offsets are lost: their end may have been among these."""
    told = set()
    for opened, (first, last) in cut:
        if (opened.producer_id, opened.first_offset) in told:
            continue
        told.add((opened.producer_id, opened.first_offset))
        message = (
            f"the transaction of producer {opened.producer_id} from offset {opened.first_offset} was open where offsets "
            f"{first} to {last} are lost; if its end was there, it goes on up to the next one's end, or stays open"
        )
        numbers: dict[str, int | str | bool | None] = {
            "producer_id": opened.producer_id,
            "producer_epoch": opened.producer_epoch,
            "lost_first_offset": first,
            "lost_last_offset": last,
        }
        yield Finding(
            "transaction-end-lost",
            path,
            message,
            first_offset=opened.first_offset,
            last_offset=opened.last_offset,
            numbers=numbers,
        )


def without_repetition(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Each once: the replay of what stays says again what the judgement said."""
    seen = set()
    for finding in findings:
        mark = finding.id, finding.path, finding.position, finding.first_offset, finding.message
        if mark not in seen:
            seen.add(mark)
            yield finding
