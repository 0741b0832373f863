"""The coordinators' view of the transactions under some PATHs.

1. Every available partition of `__transaction_state` is read; of several replicas the most recent one.
2. The topic's number of partitions is taken from the metadata log of a log dir, if there is one.
3. Partitions that already have their marker are removed from a prepared transaction, as a coordinator does when a broker has acknowledged
   the marker (`kafka-transactions.sh describe`). Unavailable partitions stay.
4. A transaction was committed if one of its partitions has the COMMIT marker; the decision may be lost with the end of the
   coordinator's log (`written_markers`). A partition that is further ahead refuses the coordinator's marker.
5. What the coordinators will know is settled if the log dirs of all registered brokers are available, and none of these brokers is running.

`_lowered_version`: the record of an id whose producer has used the second protocol (KIP-890, transaction.version 2) says so in a tagged
field. At level 0 a coordinator writes version 0 of the value, which has no tagged fields, and fails: 4.3.1 answers InitProducerId with
UNSUPPORTED_VERSION. After that it answers CONCURRENT_TRANSACTIONS even if the level is raised again, until it is loaded anew (both observed
with 4.3.1). At level 1 values are of version 1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from kseg.change.apply.lock import is_locked
from kseg.internal_topics.broker_directories import BrokerDirectories, most_recent
from kseg.internal_topics.load_findings import FAILS
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import MetadataImage, Partition
from kseg.internal_topics.transactions.coordinator_load import read_transaction_log
from kseg.internal_topics.transactions.lost_commits import commits_by_place
from kseg.internal_topics.transactions.transaction_log import (
    PREPARED,
    TRANSACTION_STATE,
    CoordinatorView,
    TopicPartition,
    TransactionalId,
    TransactionLog,
    joined,
    partitions_in,
)
from kseg.internal_topics.transactions.written_markers import WrittenMarkers
from kseg.segment.counted import counted
from kseg.segment.diagnosis import UnusableTransactionalIds
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding


def coordinator_view(
    directories: BrokerDirectories, finder: MetadataFinder
) -> tuple[CoordinatorView, tuple[Finding, ...]]:
    """The state of all coordinators under PATH, and the problems of their logs. finder: of the metadata logs of these directories."""
    logs: dict[int, TransactionLog] = {}
    findings: list[Finding] = []
    damaged = []
    for number, replicas in directories.replicas(TRANSACTION_STATE).items():
        target = most_recent(replicas)
        try:
            logs[number] = read_transaction_log(target)
        except KsegError as error:
            damaged.append(number)
            findings.append(Finding(FAILS, target.path, str(error)))
            continue
        findings += logs[number].findings
    images = [*_images(directories, finder)]
    partitions = _partitions(images)
    view = joined(
        logs,
        None if partitions is None else len(partitions),
        damaged,
        is_before_a_start=not any(map(is_locked, directories.log_dirs)),
    )
    if partitions is not None and view.is_whole and _are_all_here(directories, finder, images):
        # when the brokers start, the partition elects a leader, with the next epoch
        epochs = {number: each.leader_epoch + 1 for number, each in partitions.items()}
        view = replace(view, is_settled=True, coordinator_epochs=epochs, commits=commits_by_place(view))
    findings += _lowered_version(images, view.ids.values())
    return _beside_the_logs(view, directories), tuple(findings)


def _places_of(known: TransactionalId, view: CoordinatorView) -> tuple[TopicPartition, ...]:
    """Where to look for markers of an id: the partitions of its transaction, and if the view is settled those of the last completed one. If
    the end of the coordinator's log is lost, the id's record may precede its last transaction, which likely has the same partitions."""
    decisions = view.decided.get(known.producer_id) if view.is_settled else None
    if decisions is None:
        return known.partitions
    return tuple(dict.fromkeys((*known.partitions, *partitions_in(decisions.last))))


def _images(directories: BrokerDirectories, finder: MetadataFinder) -> Iterator[MetadataImage]:
    for log_dir in directories.log_dirs:
        with suppress(KsegError):
            image = finder.image_for(log_dir)
            if image is not None:
                yield image


def _partitions(images: Iterable[MetadataImage]) -> Mapping[int, Partition] | None:
    """Those of `__transaction_state`, by the newest metadata log that has the topic."""
    for image in sorted(images, key=lambda each: each.reach, reverse=True):
        for topic in image.topics.values():
            if topic.name == TRANSACTION_STATE:
                return topic.partitions
    return None


def _are_all_here(
    directories: BrokerDirectories, finder: MetadataFinder, images: Sequence[MetadataImage]
) -> bool:
    """Whether every broker that the metadata logs name has a log dir here, and none runs."""
    nodes = {finder.node_of(log_dir).node_id for log_dir in directories.log_dirs}
    brokers = {node_id for image in images for node_id in image.brokers}
    are_certain = bool(brokers) and all(image.is_certain for image in images)
    return are_certain and brokers <= nodes and not any(map(is_locked, directories.log_dirs))


def _beside_the_logs(view: CoordinatorView, directories: BrokerDirectories) -> CoordinatorView:
    """The view, completed from the logs of the transactions' partitions (rules 3 and 4)."""
    markers = WrittenMarkers(directories)

    def left(known: TransactionalId) -> TransactionalId:
        if known.state not in PREPARED or not known.partitions:
            return known
        return replace(known, partitions=markers.unmarked(known))

    def of_producers(
        owners: Mapping[int, tuple[TransactionalId, ...]],
    ) -> dict[int, tuple[TransactionalId, ...]]:
        return {producer_id: tuple(map(left, some)) for producer_id, some in owners.items()}

    served = [known for owners in view.by_producer.values() for known in owners]
    commit_markers: dict[int, dict[int, TopicPartition]] = {}
    for known in served:
        for epoch, where in markers.later_commits(known, _places_of(known, view)):
            commit_markers.setdefault(known.producer_id, {}).setdefault(epoch, where)
    # not while a broker runs: the partitions are read after the coordinators' logs, and may be ahead of them
    judged = served if view.is_settled else ()
    refused = ((known.transactional_id, markers.refused(known, view.epoch_of(known))) for known in judged)
    return replace(
        view,
        decided={},  # no longer needed, and every process that reads partitions gets the view
        ids={name: left(known) for name, known in view.ids.items()},
        by_producer=of_producers(view.by_producer),
        unloaded=of_producers(view.unloaded),
        commit_markers=commit_markers,
        refused={name: each for name, each in refused if each is not None},
    )


_FEATURE = "transaction.version"


def _lowered_version(images: Sequence[MetadataImage], ids: Iterable[TransactionalId]) -> Iterator[Finding]:
    """The finding about the newest metadata log; none if it may be incomplete. An id whose transaction was not ended when the level was
    lowered is not counted: a coordinator aborts that first, and the id goes on."""
    newest = max(images, key=lambda each: each.reach, default=None)
    if newest is None or not newest.is_certain or newest.features.get(_FEATURE, 0):
        return
    names = tuple(
        sorted(
            known.transactional_id
            for known in ids
            if known.client_version and known.is_loaded and known.state in ("CompleteCommit", "CompleteAbort")
        )
    )
    if not names:
        return
    more = f" (and {counted(len(names) - 1, 'more id')} likewise)" if len(names) > 1 else ""
    message = (
        f"{_FEATURE} has level 0, but transactional id {names[0]} was used by a producer of the second protocol: its coordinator answers "
        f"UNSUPPORTED_VERSION to every new producer with this id{more}"
    )
    about = UnusableTransactionalIds(names)
    yield Finding.about("transaction-version-lowered", newest.path, message, about)
