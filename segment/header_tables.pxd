# The columns of `header_tables.py` as numbers that the C compiler knows.
cdef enum:
    POSITION = 0
    SIZE = 1
    MAGIC = 2
    BASE_OFFSET = 3
    LAST_OFFSET = 4
    COUNT = 5
    ATTRIBUTES = 6
    LEADER_EPOCH = 7
    CRC = 8
    BASE_TIMESTAMP = 9
    MAX_TIMESTAMP = 10
    PRODUCER_ID = 11
    PRODUCER_EPOCH = 12
    BASE_SEQUENCE = 13
    VALID = 14
    BODY = 15
    BATCH_WIDTH = 16

cdef enum:
    BODY_UNKNOWN = 0
    BODY_BEGINS = 1
    BODY_SOUND = 2

cdef enum:
    CODEC_MASK = 7
    TIMESTAMP_TYPE_BIT = 8
    TRANSACTIONAL_BIT = 16
    CONTROL_BIT = 32
    DELETE_HORIZON_BIT = 64

cdef enum:
    R_BATCH = 0
    R_OFFSET = 1
    R_TIMESTAMP = 2
    R_KEY_START = 3
    R_KEY_LENGTH = 4
    R_VALUE_START = 5
    R_VALUE_LENGTH = 6
    R_HEADERS_START = 7
    R_HEADER_COUNT = 8
    R_SEQUENCE = 9
    R_CRC = 10
    R_VALID = 11
    RECORD_WIDTH = 12

cdef enum:
    T_RECORDS = 0
    T_KEPT = 1
    T_TOMBSTONES = 2
    T_MAX_TIMESTAMP = 3
    T_FIRST_TIMESTAMP = 4
    T_FIRST_OFFSET = 5
    T_LAST_OFFSET = 6
    T_BEGIN = 7
    T_NEGATIVE = 8
    TALLY_WIDTH = 9
