"""The journal in which a run of `recover` removed the clean-shutdown marker: it identifies a run that was killed.

The resumed run, or a later one, restores the marker from this journal once it is true again.
"""

import os

from kseg.change.apply.journal_probe import may_have_journal
from kseg.recovery.repair.clean_shutdown_marker import MARKER, Marker
from kseg.recovery.repair.log_dir import COMMAND
from kseg.segment.values import dataclass

LOSSES = "losses"  # in the journal that holds the marker: the partitions from which the run removes bytes
_SOMETHING = "a partition"  # if the journal does not name them


@dataclass(frozen=True, slots=True)
class Opening:
    """The journal in which a run removed the marker and that no later run has closed. marker: the one that was removed."""

    id: str
    marker: Marker


def opening_of(log_dir: str) -> Opening | None:
    """The opening journal of a run that did not complete, None if there is none."""
    from kseg.change.apply.journal import JournalState
    from kseg.change.apply.journal_scan import journals_in

    if not may_have_journal(log_dir):
        return None
    journals = journals_in(log_dir)
    followed = {journal.header.get("after") for journal in journals}
    found = None
    for journal in journals:
        is_opening = journal.command == COMMAND and journal.state is JournalState.DONE
        saved = journal.location.old(MARKER)
        if is_opening and journal.location.id not in followed and os.path.exists(saved):
            announced = journal.header.get("told")
            losses = announced.get(LOSSES) if isinstance(announced, dict) else None
            names = [str(name) for name in losses] if isinstance(losses, list) else [_SOMETHING]
            found = Opening(journal.location.id, Marker(saved, tuple(names)))
    return found
