"""The decoders of plain keys and values that Kafka ships for `--key-decoder-class` and `--value-decoder-class`.

StringDecoder, IntegerDecoder and LongDecoder of `org.apache.kafka.tools.api`: numbers are big-endian, bytes after them are ignored, and
with too few the tool fails with a BufferUnderflowException. DefaultDecoder prints the identity of a Java object, which cannot be
reproduced.
"""

import struct

from kseg.segment.errors import UsageError
from kseg.segment.java.java_output import decode_utf8
from kseg.segment.record_decoder import RecordText
from kseg.segment.values import dataclass

_PACKAGE = "org.apache.kafka.tools.api."
STRING = f"{_PACKAGE}StringDecoder"
_NUMBERS = {f"{_PACKAGE}IntegerDecoder": struct.Struct(">i"), f"{_PACKAGE}LongDecoder": struct.Struct(">q")}
DECODER_CLASSES = (STRING, *_NUMBERS)


def check_decoder_class(name: str) -> None:
    """Raises UsageError for a class that is not one of DECODER_CLASSES."""
    if name not in DECODER_CLASSES:
        raise UsageError(f"kseg cannot run the decoder class {name}: it has {', '.join(DECODER_CLASSES)}")


@dataclass(frozen=True, slots=True)
class PlainText:
    """A decoder of plain keys and values. key_class, value_class: one of DECODER_CLASSES."""

    key_class: str
    value_class: str

    def program(self) -> None:
        """See `RecordDecoder`."""

    def text(self, offset: int, key: bytes | None, value: bytes | None) -> RecordText:
        try:
            return RecordText(_text(self.key_class, key), _text(self.value_class, value))
        except struct.error:
            return RecordText(None, None, "BufferUnderflowException")


def _text(decoder_class: str, data: bytes | None) -> bytes | None:
    if data is None:
        return None
    number = _NUMBERS.get(decoder_class)
    return decode_utf8(data).encode() if number is None else str(number.unpack_from(data)[0]).encode()
