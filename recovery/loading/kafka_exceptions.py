"""The exceptions of a broker's log loading that decide how it continues.

The loader catches two of them. After an overflow it splits the segment and starts again; after an offset out of order
(or a failed file operation) it truncates the segment to 0 bytes. All others end the load of the log.
"""

OVERFLOW = "LogSegmentOffsetOverflowException"
OUT_OF_ORDER = "InvalidOffsetException"
CORRUPT = "CorruptRecordException"
INVALID_RECORD = "InvalidRecordException"
ILLEGAL_ARGUMENT = "IllegalArgumentException"
INDEX_OUT_OF_BOUNDS = "IndexOutOfBoundsException"
ILLEGAL_STATE = "IllegalStateException"
KAFKA = "KafkaException"
STORAGE = "KafkaStorageException"
NO_SUCH_FILE = "NoSuchFileException"
NO_SUCH_ELEMENT = "NoSuchElementException"
NULL_POINTER = "NullPointerException"
NUMBER_FORMAT = "NumberFormatException"


class BrokerException(Exception):
    """A broker throws here. kafka_exception: simple name of the Java class. sentence: the reason, in kseg's words."""

    def __init__(self, kafka_exception: str, sentence: str) -> None:
        super().__init__(kafka_exception, sentence)
        self.kafka_exception = kafka_exception
        self.sentence = sentence
