"""Producer ids that a controller allocates a second time, because its metadata log does not show that they were allocated before.

A controller allocates producer ids in ascending order, and the metadata log has the next one (ProducerIdsRecord; a new log begins at 0).
With a log that was recreated or restored from an older copy, new producers get ids that earlier producers had. A partition that knows the
id takes the first batch of the new producer for a duplicate if the sequence numbers are equal: the broker acknowledges it and drops it
(observed with 4.3.1). With another epoch or sequence it rejects the batch.

1. Only an authoritative metadata log is judged: that of the only voter of a quorum, if nothing about it is doubtful. Those of other nodes
   may merely lag.
2. The greatest producer id in the partitions of the voter's cluster is compared with the next one of the log.
3. A ProducerIdsRecord at the end of that log makes the controller continue after them (observed with 4.3.1).

(Kafka: ProducerIdControlManager, ProducerAppendInfo, ProducerStateEntry.findDuplicateBatch.)
"""

import base64
import os
import struct
from collections.abc import Iterator, Mapping, Sequence

from kseg.change.apply.lock import is_locked
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.quorum_voters import voters_of
from kseg.segment.counted import counted
from kseg.segment.diagnosis import ReissuedProducerIds
from kseg.segment.findings import Finding
from kseg.segment.json_line import compact_json

_BLOCK = 1000  # ids that are allocated to a broker at once (Kafka: ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE)
_GREATEST = 2**63 - 1 - _BLOCK  # the greatest id after which another block fits
_FRAME = bytes((1, 15, 0))  # frame version, api key of ProducerIdsRecord, record version
_FIELDS = struct.Struct(">iqqb")  # brokerId, brokerEpoch, nextProducerId, no tagged fields


def reissued_producer_ids(
    greatest_ids: Mapping[str, int], log_dirs: Sequence[str], finder: MetadataFinder
) -> Iterator[Finding]:
    """A finding for each metadata log with which ids are allocated again. greatest_ids: of the producers in each partition directory that
    has any. log_dirs: those of the run; running brokers are not judged, since ids are allocated meanwhile."""
    for log_dir in log_dirs:
        node, image = finder.node_of(log_dir), finder.governing_image(log_dir)
        if image is None or not image.is_certain or os.path.dirname(image.path) != log_dir:
            continue
        if node.cluster_id is None or voters_of(image, [log_dir]) != {node.node_id}:
            continue
        around = {each for each in log_dirs if finder.node_of(each).cluster_id == node.cluster_id}
        found = {path: known for path, known in greatest_ids.items() if os.path.dirname(path) in around}
        next_id = image.next_producer_id or 0
        again = sorted(path for path, known in found.items() if known >= next_id)
        if not again or any(map(is_locked, around)):
            continue
        greatest = min(max(found.values()), _GREATEST)
        message = (
            f"the controller allocates producer ids from {next_id} on, and {counted(len(again), 'partition')} "
            f"({os.path.basename(again[0])}{', …' if len(again) > 1 else ''}) already {'has' if len(again) == 1 else 'have'} producers with "
            f"ids up to {greatest}: a broker may take the first batch of a new producer for a duplicate of theirs, acknowledge it, and drop it"
        )
        about = ReissuedProducerIds(next_id, greatest, image.epoch, node.node_id or 0)
        yield Finding("producer-ids-reissued", image.path, message, numbers=about.numbers(), diagnosis=about)


def record_line(about: ReissuedProducerIds) -> str:
    """The line for `kseg append` with the record that makes a controller continue after the ids in the logs."""
    following = (about.greatest_id // _BLOCK + 1) * _BLOCK
    value = _FRAME + _FIELDS.pack(about.node_id, -1, following, 0)
    return compact_json({"value": base64.b64encode(value).decode(), "value_encoding": "base64"})
