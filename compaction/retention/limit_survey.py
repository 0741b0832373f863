"""The limits at which each segment of a partition would be deleted if its policy were `delete`: for `what-if`, which sums them over
topics."""

from collections.abc import Iterator

from kseg.change.plan.inputs import inputs_of
from kseg.compaction.retention.options import Limits, RetainOptions
from kseg.compaction.retention.retention_evidence import gather, open_log
from kseg.compaction.retention.rules import thresholds
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.errors import KsegError
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class SurveyedSegment:
    """retention_ms, retention_bytes: the greatest limits that delete it, each alone; None: no limit does."""

    size_bytes: int
    retention_ms: int | None
    retention_bytes: int | None


@dataclass(frozen=True, slots=True)
class SurveyedLog:
    """The segments of a partition, in order."""

    directory: str
    segments: tuple[SurveyedSegment, ...]

    def kept_bytes(self, *, retention_ms: int | None = None, retention_bytes: int | None = None) -> int:
        """Bytes of the log that one limit keeps."""
        return sum(
            segment.size_bytes
            for segment in self.segments
            if not _goes(segment.retention_ms, retention_ms)
            and not _goes(segment.retention_bytes, retention_bytes)
        )


def _goes(greatest: int | None, limit: int | None) -> bool:
    return greatest is not None and limit is not None and limit <= greatest


def survey_limits(target: PartitionTarget, now_ms: int) -> Iterator[Event]:
    """One row, without values, whose result is a `SurveyedLog`."""
    options = RetainOptions(limits=Limits(), now_ms=now_ms)
    try:
        log, dir_state = open_log(target)
        with log:
            judged = gather(log, dir_state, inputs_of(target.path, follow_links=True), options).log_to_retain
            segments = tuple(
                SurveyedSegment(candidate.size_bytes, limit.retention_ms, limit.retention_bytes)
                for candidate, limit in zip(judged.candidates, thresholds(judged), strict=True)
            )
    except KsegError as error:
        yield Failure(target.path, str(error), error.exit_status)
        return
    yield Row({}, SurveyedLog(target.path, segments))
