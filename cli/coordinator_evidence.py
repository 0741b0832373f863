"""The state of the coordinators' topics under the PATHs of a run, for commands that evaluate partitions by it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.internal_topics.broker_directories import BrokerDirectories
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
    from kseg.internal_topics.transactions.transaction_log import CoordinatorView
    from kseg.jobs.events import Event, Failure
    from kseg.segment.partition.targets import LogTarget, Target


@dataclass(frozen=True, slots=True)
class TransactionEvidence:
    """view: the state of the coordinators. events: the rows of their transactional ids, and the findings about their logs.
    replicas: the other replicas of each partition, by path. failures: of paths that cannot be read; the run itself may have read them."""

    view: "CoordinatorView"
    events: "Sequence[Event]"
    replicas: "Mapping[str, tuple[LogTarget, ...]]"
    failures: "Sequence[Failure]"


def transactions_seen(paths: Sequence[str], finder: "MetadataFinder | None" = None) -> TransactionEvidence:
    """The state of `__transaction_state` under the paths. finder: of their metadata logs, if there is one already."""
    from kseg.internal_topics.broker_directories import readable_directories
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
    from kseg.internal_topics.transactions.coordinator_finder import coordinator_view
    from kseg.internal_topics.transactions.transaction_rows import id_row
    from kseg.jobs.events import Failure, Row

    directories, unread = readable_directories(paths)
    view, findings = coordinator_view(directories, finder or MetadataFinder(directories.log_dirs))
    rows = [Row(id_row(view.ids[name])) for name in sorted(view.ids)]
    failures = [Failure.of(path, error) for path, error in unread.items()]
    return TransactionEvidence(view, [*findings, *rows], _replicas(directories), failures)


def _replicas(directories: "BrokerDirectories") -> "dict[str, tuple[LogTarget, ...]]":
    together: dict[tuple[str, int], list[LogTarget]] = {}
    for each in directories.partitions:
        if each.name is not None and each.is_live:
            together.setdefault((each.name.topic, each.name.partition), []).append(each.target)
    return {
        target.path: tuple(other for other in targets if other is not target)
        for targets in together.values()
        if len(targets) > 1
        for target in targets
    }


def is_of_the_broker(target: "Target") -> bool:
    """Whether a target is a live partition that can have transactions: without a suffix, and not the metadata log."""
    from kseg.segment.partition.directory import own_partition_name
    from kseg.segment.partition.names import PartitionState
    from kseg.segment.partition.targets import directory_of

    name = own_partition_name(directory_of(target))
    return name is None or (name.state is PartitionState.LIVE and not name.is_metadata_log)
