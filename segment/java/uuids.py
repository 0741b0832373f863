"""Kafka's text form of a UUID: URL-safe base64 of the 16 bytes without padding, 22 characters (fact sheet §1.4).

It is not the RFC 4122 hexadecimal form. The zero uuid means "none" and is `AAAAAAAAAAAAAAAAAAAAAA`.
"""

import base64
import re

from kseg.segment.errors import FormatError

ZERO = "A" * 22
_TEXT = re.compile("([A-Za-z0-9_-]{22})(==)?")


def uuid_text(data: bytes) -> str:
    """The 22 characters for 16 bytes; raises FormatError for any other number of bytes."""
    if len(data) != 16:
        raise FormatError(f"a uuid has 16 bytes, not {len(data)}")
    return base64.urlsafe_b64encode(data)[:22].decode("ascii")


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a UUID's text. Accepts padding and stray bits in the last character, as Java does;
    raises FormatError for anything else."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise FormatError(f"{text[:40]!r} is not a valid uuid")
    return base64.urlsafe_b64decode(match[1] + "==")


def is_uuid(text: str) -> bool:
    """Whether Java parses the text as a UUID, including the zero one."""
    return _TEXT.fullmatch(text) is not None


def is_reserved(text: str) -> bool:
    """Whether Kafka reserves the UUID for a special meaning, such as "lost", so that no directory may have it as its
    id (Kafka: DirectoryId.reserved)."""
    data = uuid_bytes(text)
    return not any(data[:8]) and int.from_bytes(data[8:], "big", signed=True) < 100


def canonical_uuid(text: str) -> str:
    """The text as Kafka would write it; raises FormatError if it is not a UUID."""
    return uuid_text(uuid_bytes(text))
