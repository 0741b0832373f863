"""Producer ids that a controller allocates a second time, because its metadata log does not show that they were allocated before.

A controller allocates producer ids in ascending order, and the metadata log has the next one (ProducerIdsRecord; a new log begins at 0).
With a log that was recreated or restored from an older copy, new producers get ids that earlier producers had. A partition that knows the
id takes the first batch of the new producer for a duplicate if the sequence numbers are equal: the broker acknowledges it and drops it
(observed with 4.3.1). With another epoch or sequence it rejects the batch.

1. Only what a controller may be elected with is judged: the metadata logs of voters, if nothing about them is doubtful and those with which
   ids are allocated again are a majority. Fewer may merely lag: they vote for a controller that does not.
2. The greatest producer id in the partitions of the voter's cluster is compared with the next one of the log.
3. A ProducerIdsRecord at the end of that log makes the controller continue after them (observed with 4.3.1). Of several, the longest gets
   it, and is copied over the others: if each got it, and they end at different offsets, they would differ in what they have there.

(Kafka: ProducerIdControlManager, ProducerAppendInfo, ProducerStateEntry.findDuplicateBatch.)
"""

import base64
import os
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from kseg.change.apply.lock import is_locked
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.internal_topics.metadata.quorum_voters import voters_of
from kseg.segment.counted import counted
from kseg.segment.diagnosis import ReissuedProducerIds
from kseg.segment.findings import Finding
from kseg.segment.json_line import compact_json
from kseg.segment.values import dataclass

_BLOCK = 1000  # ids that are allocated to a broker at once (Kafka: ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE)
_GREATEST = 2**63 - 1 - _BLOCK  # the greatest id after which another block fits
_FRAME = bytes((1, 15, 0))  # frame version, api key of ProducerIdsRecord, record version
_FIELDS = struct.Struct(">iqqb")  # brokerId, brokerEpoch, nextProducerId, no tagged fields


def reissued_producer_ids(
    greatest_ids: Mapping[str, int], log_dirs: Sequence[str], finder: MetadataFinder
) -> Iterator[Finding]:
    """A finding for each metadata log with which ids are allocated again. greatest_ids: of the producers in each partition directory that
    has any. log_dirs: those of the run; running brokers are not judged, since ids are allocated meanwhile."""
    by_cluster = defaultdict[str, list[str]](list)
    for log_dir in log_dirs:
        cluster_id = finder.node_of(log_dir).cluster_id
        if cluster_id is not None:
            by_cluster[cluster_id].append(log_dir)
    for of_cluster in by_cluster.values():
        found = {path: known for path, known in greatest_ids.items() if os.path.dirname(path) in of_cluster}
        controllers = [*_controllers(of_cluster, finder)]
        greatest = max(found.values(), default=-1)
        behind = [each for each in controllers if (each.image.next_producer_id or 0) <= greatest]
        if behind and not any(map(is_locked, of_cluster)):
            newest = max(controllers, key=lambda each: each.image.reach)
            majority = len(newest.voters) // 2 + 1
            if len({each.node_id for each in behind}) >= majority:
                yield from (_finding(each, newest.image, found) for each in behind)


@dataclass(frozen=True, slots=True)
class _Controller:
    """A voter, with the metadata log of its own."""

    node_id: int
    image: MetadataImage
    voters: AbstractSet[int]


def _controllers(log_dirs: Sequence[str], finder: MetadataFinder) -> Iterator[_Controller]:
    for log_dir in log_dirs:
        node_id, image = finder.node_of(log_dir).node_id, finder.governing_image(log_dir)
        if image is None or not image.is_certain or os.path.dirname(image.path) != log_dir:
            continue
        voters = voters_of(image, [log_dir])
        if node_id in voters:
            yield _Controller(node_id, image, voters)


def _finding(controller: _Controller, newest: MetadataImage, greatest_ids: Mapping[str, int]) -> Finding:
    image, next_id = controller.image, controller.image.next_producer_id or 0
    again = sorted(path for path, known in greatest_ids.items() if known >= next_id)
    greatest = min(max(greatest_ids.values()), _GREATEST)
    message = (
        f"the controller allocates producer ids from {next_id} on, and {counted(len(again), 'partition')} "
        f"({os.path.basename(again[0])}{', …' if len(again) > 1 else ''}) already {'has' if len(again) == 1 else 'have'} producers with "
        f"ids up to {greatest}: a broker may take the first batch of a new producer for a duplicate of theirs, acknowledge it, and drop it"
    )
    about = ReissuedProducerIds(next_id, greatest, newest.epoch, controller.node_id, newest.path)
    return Finding.about("producer-ids-reissued", image.path, message, about)


def record_line(about: ReissuedProducerIds) -> str:
    """The line for `kseg append` with the record that makes a controller continue after the ids in the logs."""
    following = (about.greatest_id // _BLOCK + 1) * _BLOCK
    value = _FRAME + _FIELDS.pack(about.node_id, -1, following, 0)
    return compact_json({"value": base64.b64encode(value).decode(), "value_encoding": "base64"})
