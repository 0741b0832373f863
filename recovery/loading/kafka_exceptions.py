"""The exceptions of a broker's log loading, as far as they decide how it goes on.

Two of them are caught by the loader: an overflow makes it split the segment and begin again, an offset out of order
(or a failed file operation) makes it empty the segment. All others end the load of the log.
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


class KafkaThrows(Exception):
    """A broker throws here. kafka_exception: simple name of the Java class. sentence: why, in our words."""

    def __init__(self, kafka_exception: str, sentence: str) -> None:
        super().__init__(kafka_exception, sentence)
        self.kafka_exception = kafka_exception
        self.sentence = sentence
