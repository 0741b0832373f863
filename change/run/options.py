"""The options that all commands share that plan a change and carry it out."""

from kseg.change.apply.keeping import BESIDE, Keeping
from kseg.change.run.shared_run import SharedRun
from kseg.segment.partition.topic_identity import WithIdentities
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions(WithIdentities):
    """apply: change the directories; run_id: names the journals of this run. output: write changed copies below this directory
    instead (None: neither, plan only); hard_link: unchanged files of a copy are links. keeping: where journals and removed data are
    stored. follow_links: a directory to be changed may be a link. accept_unreadable: bytes that cannot be read count as lost, and
    are no reason to refuse a change in place. shared: the work is done by attempts in other processes; None: by this process and its
    workers.
    """

    apply: bool = False
    run_id: str = ""
    output: str | None = None
    hard_link: bool = False
    keeping: Keeping = BESIDE
    follow_links: bool = False
    accept_unreadable: bool = False
    shared: SharedRun | None = None
