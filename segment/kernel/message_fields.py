"""The numbers that the compiled programs of messages and their readers share: fields of programs and states, kinds, errors.

`kernel.message_reader` describes a program.
"""

# --- the state of a reader
(
    OUT,  # end of the text
    ERROR,
    A,  # a number of the error: the one that was read
    B,  # the number of bytes left, or 1 for an element of the field
    FIELD,  # the field of the error, as a position in the program
    VALUE,  # the number that was read last
    IS_CONSUMER,  # whether the protocol type that was read last is `consumer`
    UNKNOWN_TAGS,  # their number
    ODDITIES,  # number of five-byte varints and of tags with a wrong size
    SCRATCH,  # for each depth, the positions of TAG_LIMIT tags
) = range(10)
TAG_LIMIT, DEPTH_LIMIT = 16, 8
STATE_WIDTH = 137  # SCRATCH + TAG_LIMIT * DEPTH_LIMIT

# --- behind it, for `decoded_lines`
STAGE, TYPE, VERSION, LEFT_OVER, KEY_END, LINES_STATE_WIDTH = range(137, 143)

# --- behind it, for `message_rows`: whether the record at state[LINES_RECORD] is left to the caller, and its type
STOPPED, ROW_TYPE, ROWS_STATE_WIDTH = range(137, 140)

# --- a program: its form, the number of types, and the positions of the tables of types and of topic ids
PROGRAM_FORM, PROGRAM_TYPES, PROGRAM_TABLE, PROGRAM_TOPICS = range(4)
COORDINATOR, FRAMED = range(2)

# --- the entry of a type
(
    TYPE_STRUCT,
    TYPE_FIRST,
    TYPE_LAST,
    TYPE_STRUCTS,
    TYPE_TEXT,
    TYPE_TEXT_LENGTH,
    TYPE_KEY_TEXT,
    TYPE_KEY_TEXT_LENGTH,
) = range(8)
LINES_TYPE_WIDTH, ROWS_TYPE_WIDTH = 6, 8

# --- a struct, and a field in it
STRUCT_FLEXIBLE, STRUCT_FIELDS, STRUCT_TAGS, STRUCT_UNREADABLE, STRUCT_WIDTH = range(5)
TAGS, SCAN_FIRST = 1, 2  # of STRUCT_TAGS
(
    FIELD_KIND,
    FIELD_FLAGS,
    FIELD_TAG,
    FIELD_NAME,
    FIELD_NAME_LENGTH,
    FIELD_STRUCT,
    FIELD_DEFAULT,
    FIELD_DEFAULT_LENGTH,
    FIELD_WIDTH,
) = range(9)
ARRAY, NULLABLE, TAGGED, NAMED = 1, 2, 4, 8  # of FIELD_FLAGS

# --- kinds of fields
(
    BOOL,
    INT8,
    INT16,
    UINT16,
    INT32,
    UINT32,
    INT64,
    FLOAT64,
    UUID,
    STRING,
    BYTES,
    STRUCT,
    PROTOCOL_TYPE,  # a string that determines whether PROTOCOL fields are those of consumers
    PROTOCOL,  # bytes that contain a message of their own
    INVALID_TAG,  # a tag that this version does not have
) = range(15)

# --- what to write
SILENT, AS_KAFKA, AS_ROWS = range(3)
SPARE_ROOM = 48  # in bytes: enough for a byte of punctuation and a value of fixed size

# --- errors of a reader
(
    NO_ERROR,
    UNDERFLOW,
    IS_NULL,
    TOO_LONG,
    MISSING_BYTES,
    TOO_MANY,
    BAD_VARINT,
    NEGATIVE_SIZE,
    TOO_NEW,
    NO_ROOM,
    BAD_TAG,
    UNFIT,
) = range(12)
IS_TRUNCATED, IS_TOO_LARGE = 1, 2  # of a varint of the frame

# --- where `decoded_lines` stopped
(
    NO_STAGE,
    KEY_MISSING,
    KEY_TYPE,
    UNKNOWN_TYPE,
    KEY_MESSAGE,
    VALUE_VERSION,
    UNKNOWN_VERSION,
    VALUE_MESSAGE,
    FRAME_VERSION,
    BAD_FRAME_VERSION,
    FRAME_TYPE,
    MESSAGE_VERSION,
    GARBAGE,
) = range(13)
