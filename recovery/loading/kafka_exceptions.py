"""The exceptions of a broker's log loading that decide how it continues.

The loader catches two of them. After an overflow it splits the segment and starts again; after an offset out of order
(or a failed file operation) it truncates the segment to 0 bytes. All others end the load of the log.
"""

from kseg.segment.errors import FormatError
from kseg.segment.java.java_text import NotUtf8

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
    """A broker throws here. kafka_exception: simple name of the Java class. sentence: the reason, in kseg's words. logged: the class that
    the broker's log names, which differs where the broker wraps the exception."""

    def __init__(self, kafka_exception: str, sentence: str, logged: str | None = None) -> None:
        super().__init__(kafka_exception, sentence)
        self.kafka_exception = kafka_exception
        self.sentence = sentence
        self.logged = logged or (IO if kafka_exception == STORAGE else kafka_exception)


def unreadable_file(kafka_exception: str, name: str, error: FormatError) -> BrokerException:
    """The exception that a broker throws for a small file that it cannot read."""
    logged = MALFORMED_INPUT if isinstance(error, NotUtf8) else None
    return BrokerException(kafka_exception, f"{name} cannot be read: {error}", logged)
