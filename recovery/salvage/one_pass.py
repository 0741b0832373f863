"""One pass of salvage over a directory: find the valid runs, order them, plan the segments."""

from kseg.recovery.policy import Circumstances, LoadSettings, Repair
from kseg.recovery.salvage.assessment import Assessment, judge
from kseg.recovery.salvage.leftovers import Leftovers
from kseg.recovery.salvage.logs import Logs
from kseg.recovery.salvage.working_image import Draft


def look(draft: Draft, circumstances: Circumstances, settings: LoadSettings, *, rebuild: bool) -> Repair:
    """The steps 1 to 6, once."""
    leftovers = Leftovers(draft)
    may_stay = leftovers.are_marks_only and not rebuild
    if not may_stay:
        leftovers.settle()
    judgement = judge(draft.directory, draft.sources(), circumstances, settings, draft.reader)
    if may_stay:
        if judgement.is_at_peace:
            return _as_it_is(draft, judgement, circumstances)
        leftovers.settle()
    judgement.forget_leftovers()
    from kseg.recovery.salvage.planner import Planning  # most partitions need none

    with Logs(judgement.logs, draft.reader) as logs:
        return Planning(draft, leftovers, judgement, logs, circumstances, settings, rebuild).repair()


def _as_it_is(draft: Draft, judgement: Assessment, circumstances: Circumstances) -> Repair:
    end_offset = judgement.facts[-1].end_offset
    log_start_offset = min(max(circumstances.log_start_offset, judgement.facts[0].base_offset), end_offset)
    return Repair(
        image=draft.image,
        log_start_offset=log_start_offset,
        log_end_offset=end_offset,
        last_stable_offset=judgement.producers.last_stable_offset(end_offset, log_start_offset),
        recovery_point=circumstances.safe_point(end_offset),
        findings=tuple(judgement.findings),
    )
