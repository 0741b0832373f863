"""The coordinators' view of the transactions under some PATHs.

1. Every available partition of `__transaction_state` is read; of several replicas the longest.
2. The topic's number of partitions is taken from the metadata log of a log dir, if there is one.
3. From a prepared transaction the partitions that already have their marker are removed, as a coordinator removes them when a broker has
   acknowledged the marker (`kafka-transactions.sh describe`). Unavailable partitions stay.
4. An ongoing transaction of which a partition has the COMMIT marker was committed; the decision was lost with the end of the
   coordinator's log (`written_markers`).
"""

from collections.abc import Mapping
from dataclasses import replace

from kseg.internal_topics.broker_directories import BrokerDirectories, longest
from kseg.internal_topics.load_findings import FAILS
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.transactions.coordinator_load import read_transaction_log
from kseg.internal_topics.transactions.transaction_log import (
    PREPARED,
    TRANSACTION_STATE,
    CoordinatorView,
    TransactionalId,
    TransactionLog,
    joined,
)
from kseg.internal_topics.transactions.written_markers import WrittenMarkers
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding


def coordinator_view(directories: BrokerDirectories) -> tuple[CoordinatorView, tuple[Finding, ...]]:
    """The state of all coordinators under PATH, and the problems of their logs."""
    logs: dict[int, TransactionLog] = {}
    findings: list[Finding] = []
    damaged = []
    for number, replicas in directories.replicas(TRANSACTION_STATE).items():
        target = longest(replicas)
        try:
            logs[number] = read_transaction_log(target)
        except KsegError as error:
            damaged.append(number)
            findings.append(Finding(FAILS, target.path, str(error)))
            continue
        findings += logs[number].findings
    view = joined(logs, _partition_count(directories), damaged)
    return _beside_the_logs(view, directories), tuple(findings)


def _partition_count(directories: BrokerDirectories) -> int | None:
    finder = MetadataFinder(directories.log_dirs)
    for log_dir in directories.log_dirs:
        try:
            image = finder.image_for(log_dir)
        except KsegError:
            continue
        for topic in () if image is None else image.topics.values():
            if topic.name == TRANSACTION_STATE:
                return len(topic.partitions)
    return None


def _beside_the_logs(view: CoordinatorView, directories: BrokerDirectories) -> CoordinatorView:
    """The view with what the partitions of the transactions tell (rules 3 and 4)."""
    markers = WrittenMarkers(directories)

    def left(known: TransactionalId) -> TransactionalId:
        if known.state not in PREPARED or not known.partitions:
            return known
        return replace(known, partitions=markers.unmarked(known))

    def of_producers(
        owners: Mapping[int, tuple[TransactionalId, ...]],
    ) -> dict[int, tuple[TransactionalId, ...]]:
        return {producer_id: tuple(map(left, some)) for producer_id, some in owners.items()}

    served = (known for owners in view.by_producer.values() for known in owners)
    committed_at = ((known.transactional_id, markers.committed_at(known)) for known in served)
    return replace(
        view,
        ids={name: left(known) for name, known in view.ids.items()},
        by_producer=of_producers(view.by_producer),
        unloaded=of_producers(view.unloaded),
        committed_at={name: where for name, where in committed_at if where is not None},
    )
