"""SQL functions of `kafka-log`.

    kafka_batch_bytes(records, codec)    the size of a batch of these records with that codec, in bytes

`records` is an array of structs of key and value in their order, such as
`collect_list(struct(key, value))`; headers and the distances of timestamps are not counted. `codec` is a name as in
`_meta.codec`. Null for no records and for an unknown codec.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kseg.segment.encoding.batch import encode_batch
from kseg.segment.errors import KsegError
from kseg.segment.layout import CODEC_NAMES
from kseg.segment.model import NewBatch, Record

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

BATCH_BYTES = "kafka_batch_bytes"


def register_functions(spark: "SparkSession") -> None:
    spark.udf.register(BATCH_BYTES, batch_bytes, "bigint")


def batch_bytes(records: "Sequence[Row] | None", codec: str | None) -> int | None:
    """The size of a batch in bytes, by the rules of the module docstring."""
    if not records or codec not in CODEC_NAMES:
        return None
    batch = NewBatch(
        records=tuple(
            Record(offset, 0, _bytes(record[0]), _bytes(record[1])) for offset, record in enumerate(records)
        ),
        codec=CODEC_NAMES.index(codec),
    )
    try:
        return len(encode_batch(batch))
    except KsegError:  # the records do not fit into one batch
        return None


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
