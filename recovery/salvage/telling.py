"""Findings that salvage adds to those of the judgement: what was decided, and what the operator must know of it."""

from collections.abc import Iterable, Iterator, Sequence

from kseg.recovery.repair.outcome import Removed
from kseg.recovery.salvage.found import Logs
from kseg.recovery.salvage.overlaps import COPY, EPOCH, FIRST, OWN_SEGMENT, Beaten
from kseg.segment.findings import Finding
from kseg.segment.state.producer import ProducerState

_OUTSIDE = "non-transactional-in-transaction"

_RULES = {
    COPY: "byte for byte the same; the first copy stays",
    EPOCH: "the copy of the higher leader epoch stays",
    OWN_SEGMENT: "the copy in the segment of these offsets stays",
    FIRST: "the first copy stays",
}


def overlap_findings(logs: Logs, beaten: Sequence[Beaten]) -> Iterator[Finding]:
    """Each range of offsets that was held twice, and which copy goes."""
    for entry in beaten:
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


def transaction_findings(
    path: str, producers: ProducerState, findings: Iterable[Finding], removed: Iterable[Removed]
) -> Iterator[Finding]:
    """Transactions whose marker may lie among the lost offsets: those open at the end, and those of a producer that
    went on without one. findings: of the replay."""
    lost = [
        (entry.first_offset, entry.last_offset)
        for entry in removed
        if entry.first_offset is not None and entry.last_offset is not None
    ]
    if not lost:
        return
    for opened in producers.open_transactions:
        if any(last > opened.first_offset for _, last in lost):
            message = (
                f"the transaction of producer {opened.producer_id} from offset {opened.first_offset} is open, and its "
                "end may be lost; readers of committed data stop there until it is ended"
            )
            yield _lost_end(path, message, opened.producer_id, opened.first_offset, opened.last_offset)
    for finding in findings:
        producer_id = finding.numbers.get("producer_id")
        if finding.id != _OUTSIDE or finding.first_offset is None or not isinstance(producer_id, int):
            continue
        if any(first < finding.first_offset for first, _ in lost):
            message = (
                f"producer {producer_id} goes on at offset {finding.first_offset} outside a transaction whose end is "
                "probably lost; a broker's recovery dies of this batch (InvalidTxnStateException)"
            )
            yield _lost_end(finding.path, message, producer_id, finding.first_offset, finding.last_offset)


def _lost_end(path: str, message: str, producer_id: int, first: int, last: int | None) -> Finding:
    return Finding(
        "transaction-end-lost",
        path,
        message,
        first_offset=first,
        last_offset=last,
        numbers={"producer_id": producer_id},
    )


def without_repetition(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Each once: the replay of what stays says again what the judgement said."""
    seen = set()
    for finding in findings:
        mark = finding.id, finding.path, finding.position, finding.first_offset, finding.message
        if mark not in seen:
            seen.add(mark)
            yield finding
