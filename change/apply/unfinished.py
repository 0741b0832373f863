"""Unfinished changes: every command reports them, commands that write refuse them, and the command that began one completes it."""

from collections.abc import Iterator

from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.executor import Applied, finish_claimed
from kseg.change.apply.journal import Journal, JournalState, is_there
from kseg.change.apply.journal_lines import PLAN
from kseg.change.apply.journal_scan import unfinished_in
from kseg.change.apply.lock import claimed_by_command, is_claimed
from kseg.change.apply.recorded_change import abandon, half_done_sentence, overtaken_by, remains_of
from kseg.segment.errors import Refused
from kseg.segment.findings import Finding

AT_WORK = "another kseg is changing {} at this moment"


def complete_unfinished(directory: str, command: str, disk: Disk = DISK) -> list[Applied]:
    """Before `command` plans a change to `directory`: remove a change that did not commit, and complete an incomplete one of the same
    command. Returns what was completed. Raises Refused if an incomplete change of another command, or an incomplete undo, is in the way."""
    if not unfinished_in(directory, disk):
        return []
    with claimed_by_command(directory, disk.follow_links):
        finished = []
        for journal in unfinished_in(directory, disk):
            is_own = (
                journal.kind == PLAN and journal.command == command and journal.state is JournalState.APPLYING
            )
            if journal.state is JournalState.ABANDONED:
                abandon(journal, disk)
            elif is_own:
                done = finish_claimed(journal, disk)
                finished += [done] if done is not None else []
            elif journal.is_half_done:
                raise Refused(half_done_sentence(journal))
        return finished


def refuse_half_done(directory: str, disk: Disk = DISK) -> None:
    """For a command that plans without writing. Raises Refused if `directory` has an incomplete change."""
    for journal in half_done(directory, disk):
        raise Refused(AT_WORK.format(directory) if is_claimed(directory) else half_done_sentence(journal))


def half_done(directory: str, disk: Disk = DISK) -> list[Journal]:
    """The incomplete changes of one directory. Two look-ups if kseg has never changed it."""
    return [journal for journal in unfinished_in(directory, disk) if journal.is_half_done]


def half_done_findings(directory: str, disk: Disk = DISK) -> Iterator[Finding]:
    """The incomplete changes of a directory as findings, for commands that only read."""
    for journal in half_done(directory, disk):
        is_at_work = is_claimed(directory)
        overtaken = [] if is_at_work else overtaken_by(journal)
        sentence = half_done_sentence(journal, overtaken).removeprefix(f"{journal.path}: ")
        if is_at_work:
            sentence = AT_WORK.format(directory)
        is_missing = journal.state is JournalState.UNREADABLE and not is_there(journal.location, disk)
        finding_id = "journal-missing" if is_missing else "half-done-journal"
        if overtaken:
            finding_id = "journal-overtaken"
        for path in [journal.path] if finding_id == "half-done-journal" else remains_of(journal):
            yield Finding(
                finding_id,
                path,
                sentence,
                numbers={"journal": journal.path, "command": journal.command, "state": str(journal.state)},
            )
