"""Constants of the on-disk formats that several modules share (fact sheet §2, §4; all integers big-endian).

Record batch, magic 2 (61-byte header)            Message, magic 0 and 1
    0  base_offset        int64                       0  offset      int64
    8  batch_length       int32  (bytes after)        8  size        int32 (bytes after)
   12  leader_epoch       int32                      12  crc         uint32, CRC-32 of magic … end
   16  magic              int8                       16  magic       int8
   17  crc                uint32, CRC-32C of 21…     17  attributes  int8
   21  attributes         int16                      18  timestamp   int64, magic 1 only
   23  last_offset_delta  int32                      18/26 key length int32, key, value length int32, value
   27  base_timestamp     int64
   35  max_timestamp      int64
   43  producer_id        int64
   51  producer_epoch     int16
   53  base_sequence      int32
   57  record_count       int32
   61  records
"""

LENGTH_POSITION = 8
ENTRY_OVERHEAD = LENGTH_POSITION + 4  # offset and size: common to all magics
MAGIC_POSITION = ENTRY_OVERHEAD + 4
HEADER_TO_MAGIC = MAGIC_POSITION + 1  # Kafka's Records.HEADER_SIZE_UP_TO_MAGIC: a walk reads at least this
BATCH_HEADER = 61
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MIN_LEGACY_SIZE_FIELD = 14  # a size field below this is corrupt in every format

MAGIC_V0, MAGIC_V1, MAGIC_V2 = 0, 1, 2

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
NO_TIMESTAMP_TYPE = "NoTimestampType"

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

OFFSET_INDEX_ENTRY = 8
TIME_INDEX_ENTRY = 12
TXN_INDEX_ENTRY = 34
DEFAULT_INDEX_INTERVAL_BYTES = 4096
DEFAULT_SEGMENT_INDEX_BYTES = 10 * 1024 * 1024
MAX_SEGMENT_BYTES = INT32_MAX

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
CHECKPOINT_SUFFIX = ".checkpoint"
KAFKA07_SUFFIX = ".kafka"
DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX = ".deleted", ".cleaned", ".swap"


def codec_name(codec: int) -> str:
    """Kafka's lower-case name of a codec id; the invalid ids 5-7 are named by number."""
    return CODEC_NAMES[codec] if 0 <= codec < len(CODEC_NAMES) else f"unknown({codec})"


def timestamp_type_name(magic: int, attributes: int) -> str:
    """Kafka's name of a batch's timestamp type; magic 0 has none."""
    if magic == MAGIC_V0:
        return NO_TIMESTAMP_TYPE
    return LOG_APPEND_TIME if attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME


def as_int32(value: int) -> int:
    """`value` as Java's int arithmetic leaves it: modulo 2^32, signed."""
    return (value + 2**31) % 2**32 - 2**31


def as_int64(value: int) -> int:
    """`value` as Java's long arithmetic leaves it: modulo 2^64, signed."""
    return (value + 2**63) % 2**64 - 2**63


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequence numbers are in 0…2^31-1 and wrap to 0 (Kafka: DefaultRecordBatch.incrementSequence).

    Damaged headers can contain any two int32; the result is then that of Java's overflow.
    """
    if sequence > as_int32(INT32_MAX - increment):
        return as_int32(increment - (INT32_MAX - sequence) - 1)
    return as_int32(sequence + increment)


def decrement_sequence(sequence: int, decrement: int) -> int:
    """The exact inverse of `increment_sequence`."""
    if sequence < decrement:
        return INT32_MAX - (decrement - sequence) + 1
    return sequence - decrement
