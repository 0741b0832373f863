"""Logs whose batches number their records wrongly. Kafka 4.3.1 appends such a batch from a client if it is not compressed: it assigns base
and last offset by the count and leaves the offset deltas of the records as they are (Kafka: LogValidator.assignOffsetsNonCompressed)."""

from __future__ import annotations

from pathlib import Path

from tests.support.raw_batches import record, sealed

RECORDS = 8
RIGHT = tuple(range(RECORDS))
# the offset deltas of the records of a batch
WRONG_DELTAS = {
    "zero": (0,) * RECORDS,
    "descending": RIGHT[::-1],
    "negative": tuple(delta - RECORDS for delta in RIGHT),
    "negative-descending": tuple(-1 - delta for delta in RIGHT),
    "gaps": tuple(2 * delta for delta in RIGHT),
}
# The records of such a batch after a right one that a consumer of 4.3.1 does not get, wherever it begins (judged by `kseg.oracle.Consume`
# on a broker): those whose offset is below the batch or not above that of the record before. Records of a negative batch right after
# another can be given, with offsets of the one before.
LOST = {"zero": 7, "descending": 7, "negative": 8, "negative-descending": 8, "gaps": 0}


def batches_of(kinds: tuple[str | None, ...], *, as_sent: bool = False) -> list[bytes]:
    """Batches of eight records each, from offset 0 on. None: a batch with the right offset deltas. as_sent: by a client, each from offset
    0 on."""
    batches = []
    for number, kind in enumerate(kinds):
        deltas = RIGHT if kind is None else WRONG_DELTAS[kind]
        body = b"".join(record(delta, value=b"%d %d" % (number, at)) for at, delta in enumerate(deltas))
        batches.append(sealed(body, RECORDS, base_offset=0 if as_sent else number * RECORDS))
    return batches


def write_log(directory: Path, kinds: tuple[str | None, ...]) -> Path:
    """A partition directory with one segment of such batches."""
    directory.mkdir(parents=True)
    (directory / f"{0:020}.log").write_bytes(b"".join(batches_of(kinds)))
    return directory
