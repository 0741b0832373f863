"""The framing of a fetch response of Kafka 0.7 (fact sheet §2.1; 0.7.2: MessageSetSend, MultiMessageSetSend).

one       size int32 (of what follows), error code int16, messages as stored
several   size int32, error code int16, then the single responses
"""

import struct
from collections.abc import Iterable

from kseg.segment import layout as L
from kseg.segment.errors import UsageError

NO_ERROR, OFFSET_OUT_OF_RANGE = 0, 1
_HEADER = struct.Struct(">ih")
_CODE_BYTES = 2


def message_set_header(content_bytes: int, error_code: int = NO_ERROR) -> bytes:
    """The 6 bytes before a response of this size. Raises UsageError if the size does not fit."""
    if content_bytes + _CODE_BYTES > L.INT32_MAX:
        raise UsageError(f"{content_bytes} bytes do not fit into a Kafka 0.7 frame")
    return _HEADER.pack(content_bytes + _CODE_BYTES, error_code)


def multi_message_set_send(sends: Iterable[bytes]) -> bytes:
    """One response around those of several partitions, each of them complete."""
    data = b"".join(sends)
    return message_set_header(len(data)) + data
