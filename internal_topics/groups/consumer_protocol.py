"""The consumer protocol: subscriptions and assignments of the members of a classic group, inside group metadata.

Each message is preceded by an int16 version; one above the last known version is read like that version, as clients do
(Kafka: ConsumerProtocol).
"""

from kseg.internal_topics.decoding import Decoded, decode
from kseg.internal_topics.message_programs import CONSUMER_PROTOCOL
from kseg.internal_topics.schemas import messages
from kseg.segment.errors import FormatError

PROTOCOL_TYPE = "consumer"
SUBSCRIPTION, ASSIGNMENT = "ConsumerProtocolSubscription", "ConsumerProtocolAssignment"

_VERSION_BYTES = 2


def decode_member(name: str, data: bytes) -> Decoded:
    """A member's subscription or assignment. Raises FormatError."""
    (message,) = (each for each in messages() if each.topic == CONSUMER_PROTOCOL and each.name == name)
    if len(data) < _VERSION_BYTES:
        raise FormatError(f"{name} has no version")
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    return decode(message, version, data, _VERSION_BYTES)


def assigned_partitions(data: bytes) -> tuple[tuple[str, int], ...]:
    """(topic, partition) of an assignment; none for empty bytes. Raises FormatError."""
    if not data:
        return ()
    assigned = decode_member(ASSIGNMENT, data).values["assignedPartitions"]
    return tuple((each["topic"], partition) for each in assigned for partition in each["partitions"])


def subscribed_topics(data: bytes) -> frozenset[str]:
    """The topics of a subscription. Raises FormatError, also for empty bytes."""
    return frozenset(decode_member(SUBSCRIPTION, data).values["topics"])
