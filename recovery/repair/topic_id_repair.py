"""`--topic-id`: write a missing or unreadable partition.metadata.

A KRaft broker (3.7 and later) renames a log without a topic id as stray, and fails on an unreadable file
(Kafka: PartitionMetadataFile). The log itself does not contain the id: it is in the metadata log of the cluster and, if they are here, in
the other partitions of the topic. If the metadata log has, and ever had, exactly one topic of that name, its id is used. That of
`__cluster_metadata` is fixed, and always restored. Otherwise the user specifies it, and it is checked: it must be an id, neither the
partition nor the topic's other partitions may have a different one, and no other topic of this data directory may have it.
"""

import os
from dataclasses import replace

from kseg.change.plan.directory_image import DirectoryImage
from kseg.recovery.policy import Repair
from kseg.recovery.verify.topic_ids import (
    METADATA_FILE,
    missing_metadata,
    topic_id_of,
    topic_id_of_siblings,
    topic_ids,
)
from kseg.segment.errors import FormatError, Refused, UsageError
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import list_partition, own_partition_name
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.names import PartitionName
from kseg.segment.partition.topic_identity import BECOMES_STRAY, UNKNOWN_IDENTITY, TopicIdentity
from kseg.segment.sidecar.metadata_files import (
    METADATA_TOPIC_ID,
    PartitionMetadata,
    decode_partition_metadata,
    encode_partition_metadata,
)

_MISPLACED = {
    **dict.fromkeys(BECOMES_STRAY, "is renamed as stray by a broker on its next start"),
    "topic-id-conflict": "has the id of another topic",
}
_MISSING, _CORRUPT = "partition-metadata-missing", "partition-metadata-corrupt"


def with_topic_id(
    repair: Repair,
    directory: str,
    log_dir: str | None,
    topic_id: str | None,
    identity: TopicIdentity = UNKNOWN_IDENTITY,
) -> Repair:
    """Add partition.metadata and the findings about it to the repair of a partition directory.

    It is written when `topic_id` is given, or when it is missing or unreadable and the metadata log has the content. Otherwise
    the repair gets the finding that it is missing or unreadable (with the id that other partitions of the topic have). In either
    case it gets the finding that a broker does not serve the directory, unless the id resolves that.

    log_dir: the data directory around it, None when unknown. identity: what the metadata log says. Raises UsageError for a value
    that is not a topic id, Refused for one that contradicts the partition or the data directory, UnreadableInput.
    """
    if topic_id is None and METADATA_FILE not in repair.image and not list_partition(directory).segments:
        return repair  # a directory that was created and never filled: a broker creates it again
    name = own_partition_name(directory)
    if topic_id is None and METADATA_FILE in repair.image and name is not None and name.is_metadata_log:
        topic_id, identity = METADATA_TOPIC_ID, TopicIdentity(named_id=METADATA_TOPIC_ID)
    others = tuple(finding for finding in repair.findings if finding.id not in (_MISSING, _CORRUPT))
    if topic_id is None and identity.topic_id is not None and not _has_topic_id(repair.image, directory):
        return _from_metadata_log(repair, directory, identity, others)
    if identity.finding is not None and (topic_id is None or not identity.is_settled_by(topic_id)):
        others = (*others, identity.finding)
        repair = replace(repair, findings=others, misplaced=_MISPLACED[identity.finding.id])
    if topic_id is None:
        if identity.finding is not None:
            return repair
        if METADATA_FILE in repair.image:
            return _unless_readable(repair, directory, log_dir, others)
        meta_version = None if log_dir is None else read_log_dir_state(log_dir).meta_version
        missing = missing_metadata(list_partition(directory), meta_version)
        if missing is None:
            return repair
        return replace(repair, findings=(*others, missing), doubt=repair.doubt or "has no topic id")
    path = os.path.join(directory, METADATA_FILE)
    found = read_small(path) if METADATA_FILE in repair.image else None
    image = repair.image.copy()
    is_named = identity.named_id == topic_id  # the metadata log takes precedence over other files
    why = partition_metadata_step(image, topic_id, found, replaces=is_named)
    if log_dir is not None and name is not None and not is_named:
        refuse_foreign_topic_id(log_dir, name, topic_id)
    if why is None:
        return repair  # it already has this content
    return replace(repair, image=image, why={**repair.why, METADATA_FILE: why}, findings=others)


def _has_topic_id(image: DirectoryImage, directory: str) -> bool:
    return METADATA_FILE in image and topic_id_of(directory) is not None


def _from_metadata_log(
    repair: Repair, directory: str, identity: TopicIdentity, others: tuple[Finding, ...]
) -> Repair:
    """partition.metadata from the metadata log; the finding is kept as the reason for the change."""
    assert identity.topic_id is not None
    image = repair.image.copy()
    found = read_small(os.path.join(directory, METADATA_FILE)) if METADATA_FILE in image else None
    partition_metadata_step(image, identity.topic_id, found)
    state = "it is missing" if found is None else "it cannot be read"
    why = f"{state}; the metadata log has the topic's id"
    reasons = (identity.finding,) if identity.finding is not None else ()
    corrupt = tuple(finding for finding in repair.findings if finding.id == _CORRUPT)
    findings = (*others, *reasons, *corrupt)
    return replace(repair, image=image, why={**repair.why, METADATA_FILE: why}, findings=findings)


def _unless_readable(
    repair: Repair, directory: str, log_dir: str | None, others: tuple[Finding, ...]
) -> Repair:
    path = os.path.join(directory, METADATA_FILE)
    data = read_small(path)
    try:
        decode_partition_metadata(data)
    except FormatError as error:
        message = f"{error}{topic_id_of_siblings(own_partition_name(directory), log_dir)[0]}"
        corrupt = Finding(_CORRUPT, path, message, 0, len(data))
        return replace(repair, findings=(*others, corrupt), doubt=repair.doubt or "has no readable topic id")
    return repair


def partition_metadata_step(
    image: DirectoryImage, topic_id: str, found: bytes | None, *, replaces: bool = False
) -> str | None:
    """Write partition.metadata into the image; returns the reason for the plan, or None if it is already right.

    found: the original file, None when it is missing; one that cannot be read is replaced. replaces: replace one with another id,
    too. Raises UsageError for a value that is not a topic id, Refused when the partition has another one.
    """
    try:
        data = encode_partition_metadata(PartitionMetadata(topic_id))
    except FormatError as error:
        raise UsageError(f"{topic_id!r} is not a topic id: {error}") from error
    why = "it is missing, and a broker needs the topic id"
    if found is not None:
        try:
            present = decode_partition_metadata(found).topic_id
        except FormatError as error:
            why = f"it cannot be read ({error})"
        else:
            wanted = decode_partition_metadata(data).topic_id
            if present == wanted:
                return None
            if not replaces:
                raise Refused(f"{METADATA_FILE} has topic id {present}, not {wanted}")
            why = f"it says {present}, and the metadata log has the topic's id"
    image.write(METADATA_FILE, data, METADATA_FILE if METADATA_FILE in image else None)
    return why


def refuse_foreign_topic_id(log_dir: str, name: PartitionName, topic_id: str) -> None:
    """Raises Refused when the data directory says that `topic_id` cannot be the id of this partition's topic."""
    for other, other_id in topic_ids(log_dir):
        if other.topic == name.topic and other_id != topic_id:
            raise Refused(f"{other.text} has the topic id {other_id}, so {name.text} cannot have {topic_id}")
        if other.topic != name.topic and other_id == topic_id:
            raise Refused(f"{topic_id} is the topic id of {other.topic}, so {name.text} cannot have it")
