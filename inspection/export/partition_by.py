"""Split rows into directories by column values, named as Hive and Spark name them: `topic=orders/date=2024-05-01/hour=7`.

`date` and `hour` are derived from the timestamp, in UTC. Characters that a name cannot contain are escaped as Spark does it; so are
characters that a terminal would interpret or hide (C1 controls, Unicode's direction marks), byte by byte: topic names come from the disk.
"""

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from kseg.inspection.export.options import DERIVED
from kseg.inspection.export.timestamps import dates
from kseg.segment.terminal import CONTROL, FORMAT, RAW

_NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(rf"[{CONTROL}{FORMAT}{RAW}\"#%'*/:=?\\{{\[\]^]")
_BETWEEN = "\x00"


def split(batch: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """(directory, its rows), in the order of their first rows; the order of the rows is kept."""
    if not batch.num_rows:
        return
    if not columns:
        yield "", batch
        return
    texts = [_text(batch, column) for column in columns]
    keys = pc.binary_join_element_wise(
        *texts, _BETWEEN, null_handling="replace", null_replacement=_NULL_DIRECTORY
    ).dictionary_encode()
    for number, key in enumerate(keys.dictionary.to_pylist()):
        values = key.split(_BETWEEN)
        directory = "/".join(
            f"{column}={_escaped(value)}" for column, value in zip(columns, values, strict=True)
        )
        single = len(keys.dictionary) == 1
        yield directory, batch if single else batch.filter(pc.equal(keys.indices, number))


def _text(batch: pa.RecordBatch, column: str) -> pa.Array:
    if column in DERIVED:
        times = batch.column("timestamp")
        return dates(times) if column == "date" else pc.hour(times).cast(pa.string())
    return batch.column(column).cast(pa.string())


def _escaped(value: str) -> str:
    return _ESCAPED.sub(_percent, value) or _NULL_DIRECTORY


def _percent(found: re.Match[str]) -> str:
    code = ord(found[0])
    numbers = [code] if code < 0x100 else found[0].encode("utf-8", "surrogateescape")
    return "".join(f"%{number:02X}" for number in numbers)
