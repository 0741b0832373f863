"""Findings that salvage adds to those of the assessment: what it decided, and what the operator must know about that."""

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
    Superseded,
)
from kseg.recovery.verify.totals import SHOWN_PER_FILE
from kseg.segment.counted import counted, offsets_words
from kseg.segment.findings import Finding
from kseg.segment.scanning.damage_findings import transaction_end_lost
from kseg.segment.state.producer import OpenTransaction

_RULES = {
    COPY: "byte-equal copies; the first copy is kept",
    EPOCH: "the copy with the higher leader epoch is kept",
    OWN_SEGMENT: "the copy in the segment of these offsets is kept",
    FIRST: "the first copy is kept",
    IN_ORDER: "the copy that is in order with adjacent batches is kept",
    ORIGINAL: "the other is a copy of the previous batch with another offset",
    POSSIBLE: "the copy whose leader epoch is not above that of later batches is kept",
    BELIEVED: "the copy that does not follow damage is kept",
}


def overlap_findings(logs: Logs, superseded: Sequence[Superseded]) -> Iterator[Finding]:
    """One finding per range of offsets that two batches hold, with the copy that is removed."""
    for entry in superseded[:SHOWN_PER_FILE]:
        valid_run, log = entry.valid_run, logs[entry.valid_run.log]
        first, last = valid_run.first_offset, valid_run.last_offset
        message = f"{offsets_words(first, last)} exist{'s' if first == last else ''} twice: {_RULES[entry.rule]}, in {logs[entry.kept_log].name}"
        yield Finding(
            "overlap-resolved",
            log.path,
            message,
            valid_run.position,
            valid_run.length,
            first,
            last,
            {"rule": entry.rule, "batches": valid_run.batches, "kept_in": logs[entry.kept_log].name},
        )

    more = len(superseded) - SHOWN_PER_FILE
    if more > 0:
        path = logs[superseded[SHOWN_PER_FILE].valid_run.log].path
        yield Finding(
            "overlap-resolved",
            path,
            f"{counted(more, 'more range')} that exist twice",
            numbers={"more": more},
        )


def transaction_findings(
    path: str, cut: Iterable[tuple[OpenTransaction, tuple[int, int]]]
) -> Iterator[Finding]:
    """Transactions that were open at offsets that are lost, one finding each."""
    reported = set()
    for opened, (first, last) in cut:
        if (opened.producer_id, opened.first_offset) in reported:
            continue
        reported.add((opened.producer_id, opened.first_offset))
        producer = opened.producer_id, opened.producer_epoch
        offsets = opened.first_offset, opened.last_offset
        yield transaction_end_lost(path, producer, offsets, (first, last))


def without_repetition(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Drop repeated findings: replaying what is kept repeats findings of the assessment."""
    seen = set()
    for finding in findings:
        mark = finding.id, finding.path, finding.position, finding.first_offset, finding.message
        if mark not in seen:
            seen.add(mark)
            yield finding
