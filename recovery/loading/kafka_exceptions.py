"""The exceptions of a broker's log loading that decide how it continues.

The loader catches two of them. After an overflow it splits the segment and starts again; after an offset out of order
(or a failed file operation) it truncates the segment to 0 bytes. All others end the load of the log.
"""

from collections.abc import Sequence

from kseg.segment.errors import FormatError
from kseg.segment.java.java_text import INT_BITS, NotUtf8, parse_integer, read_lines, split_fields

OVERFLOW = "LogSegmentOffsetOverflowException"
OUT_OF_ORDER = "InvalidOffsetException"
CORRUPT = "CorruptRecordException"
INVALID_RECORD = "InvalidRecordException"
ILLEGAL_ARGUMENT = "IllegalArgumentException"
INDEX_OUT_OF_BOUNDS = "IndexOutOfBoundsException"
INCONSISTENT_TOPIC_ID = "InconsistentTopicIdException"
ILLEGAL_STATE = "IllegalStateException"
KAFKA = "KafkaException"
STORAGE = "KafkaStorageException"
NO_SUCH_FILE = "NoSuchFileException"
NO_SUCH_ELEMENT = "NoSuchElementException"
NULL_POINTER = "NullPointerException"
NUMBER_FORMAT = "NumberFormatException"
IO = "IOException"
FILE_SYSTEM = "FileSystemException"
ACCESS_DENIED = "AccessDeniedException"
FILE_NOT_FOUND = "FileNotFoundException"
MALFORMED_INPUT = "MalformedInputException"
RUNTIME = "RuntimeException"


class BrokerException(Exception):
    """A broker throws an exception at this point. kafka_exception: simple name of the Java class. sentence: the reason, in kseg's words.
    logged: the class that the broker's log names, which differs where the broker wraps the exception."""

    def __init__(self, kafka_exception: str, sentence: str, logged: str | None = None) -> None:
        super().__init__(kafka_exception, sentence)
        self.kafka_exception = kafka_exception
        self.sentence = sentence
        self.logged = logged or (IO if kafka_exception == STORAGE else kafka_exception)


def unreadable_file(kafka_exception: str, name: str, error: FormatError) -> BrokerException:
    """The exception that a broker throws for a small file that it cannot read."""
    logged = MALFORMED_INPUT if isinstance(error, NotUtf8) else None
    return BrokerException(kafka_exception, f"{name} cannot be read: {error}", logged)


def checkpoint_exception(data: bytes, bits: Sequence[int | None]) -> str | None:
    """The exception that Kafka throws for an unreadable CheckpointFile; None if only an entry or its place is wrong. bits: the size of the
    number in each field of an entry, None for a name.

    Most faults are an IOException, which Kafka wraps. It parses the numbers of an entry, and a negative number of entries, outside the
    try block.
    """
    try:
        lines = read_lines(data)
    except FormatError:
        return STORAGE
    announced = parse_integer(lines[1], INT_BITS) if len(lines) > 1 else None
    if parse_integer(lines[0], INT_BITS) != 0 or announced is None:
        return STORAGE
    if announced < 0:
        return ILLEGAL_ARGUMENT
    for line in lines[2:]:
        fields = split_fields(line)
        if len(fields) != len(bits):
            return STORAGE
        numbers = zip(fields, bits, strict=True)
        if any(parse_integer(field, width) is None for field, width in numbers if width is not None):
            return NUMBER_FORMAT
    return None if len(lines) - 2 == announced else STORAGE
