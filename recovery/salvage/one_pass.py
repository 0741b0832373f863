"""One pass of salvage over a directory: find the valid runs, order them, plan the segments."""

from collections.abc import Sequence
from dataclasses import replace

from kseg.recovery.policy import BrokerState, LoadSettings, Repair
from kseg.recovery.salvage.assessment import Assessment, assess
from kseg.recovery.salvage.kept_offsets import Range
from kseg.recovery.salvage.leftovers import Leftovers
from kseg.recovery.salvage.logs import Logs
from kseg.recovery.salvage.working_image import WorkingImage
from kseg.segment.state.producer import last_stable_offset


def salvage_once(
    working_image: WorkingImage,
    broker_state: BrokerState,
    settings: LoadSettings,
    *,
    rebuild: bool = False,
    lost: Sequence[Range] = (),
) -> Repair:
    """Steps 1 to 6 of `salvage`, once. lost: offsets that a previous round lost."""
    leftovers = Leftovers(working_image)
    may_stay = leftovers.are_marks_only and not rebuild
    if not may_stay:
        leftovers.resolve()
    assessment = assess(
        working_image.directory, working_image.sources(), broker_state, settings, working_image.reader
    )
    if may_stay:
        if assessment.needs_no_repair:
            return _unchanged(working_image, assessment, broker_state, settings)
        leftovers.resolve()
    assessment.forget_leftovers()
    from kseg.recovery.salvage.planner import Planner  # most partitions do not need it

    with Logs(assessment.logs, working_image.reader) as logs:
        planner = Planner(working_image, leftovers, assessment, logs, broker_state, settings, rebuild)
        repair = planner.repair(lost)
    restorable = [each for collector in assessment.collectors for each in collector.restorable]
    return replace(repair, restorable=tuple(restorable)) if restorable else repair


def _unchanged(
    working_image: WorkingImage, assessment: Assessment, broker_state: BrokerState, settings: LoadSettings
) -> Repair:
    end_offset = assessment.facts[-1].end_offset
    log_start_offset = settings.topic.log_start(
        broker_state.log_start_offset, assessment.facts[0].base_offset
    )
    log_start_offset = min(log_start_offset, end_offset)
    return Repair(
        image=working_image.image,
        log_start_offset=log_start_offset,
        log_end_offset=end_offset,
        last_stable_offset=_last_stable_offset(working_image, assessment, log_start_offset, end_offset),
        recovery_point=broker_state.safe_point(end_offset),
        findings=tuple(assessment.findings),
        unread=tuple(assessment.unread),
    )


def _last_stable_offset(
    working_image: WorkingImage, assessment: Assessment, log_start_offset: int, end_offset: int
) -> int:
    valid_runs = [each for collector in assessment.collectors for each in collector.valid_runs]
    with Logs(assessment.logs, working_image.reader) as logs:  # opens a log only where something is undecided
        return last_stable_offset(
            assessment.producers.first_unstable_offset,
            log_start_offset,
            end_offset,
            lambda offset: logs.begin_of_batch(valid_runs, offset, end_offset),
        )
