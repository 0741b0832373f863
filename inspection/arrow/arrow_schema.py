"""The Arrow schema of records: the columns of a data frame over a log.

The first eight are those of Spark's own Kafka source. `_meta` is never null and its members are never null: the format's own
−1 stands for "none" (no producer, no sequence, no leader epoch).
"""

from typing import Final

import pyarrow as pa

META: Final = "_meta"

HEADERS_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)

META_FIELDS: Final = (
    pa.field("file", pa.string(), nullable=False),
    pa.field("position", pa.int64(), nullable=False),
    pa.field("base_offset", pa.int64(), nullable=False),
    pa.field("leader_epoch", pa.int32(), nullable=False),
    pa.field("producer_id", pa.int64(), nullable=False),
    pa.field("producer_epoch", pa.int32(), nullable=False),
    pa.field("sequence", pa.int32(), nullable=False),
    pa.field("transactional", pa.bool_(), nullable=False),
    pa.field("control", pa.bool_(), nullable=False),
    pa.field("codec", pa.string(), nullable=False),
    pa.field("crc", pa.int64(), nullable=False),
    pa.field("valid", pa.bool_(), nullable=False),
)

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", HEADERS_TYPE),
        pa.field(META, pa.struct(list(META_FIELDS)), nullable=False),
    ]
)
