"""The options that all commands share that plan a change and carry it out."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Self

from kseg.change.apply.keeping import BESIDE, Keeping
from kseg.change.run.shared_run import SharedRun
from kseg.segment.partition.topic_identity import WithIdentities
from kseg.segment.partition.topic_settings import SettingsByPath
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions(WithIdentities):
    """apply: change the directories; run_id: names the journals of this run. output: write changed copies below this directory
    instead (None: neither, plan only); hard_link: unchanged files of a copy are links. keeping: where journals and removed data are
    stored. follow_links: a directory to be changed may be a link. accept_unreadable: bytes that cannot be read count as lost, and
    are no reason to refuse a change in place. shared: the work is done by attempts in other processes; None: by this process and its
    workers. topics: the settings of each topic, by partition directory, which take precedence over those of the command; None:
    these apply to all.
    """

    apply: bool = False
    run_id: str = ""
    output: str | None = None
    hard_link: bool = False
    keeping: Keeping = BESIDE
    follow_links: bool = False
    accept_unreadable: bool = False
    shared: SharedRun | None = None
    topics: SettingsByPath | None = None

    def narrowed_to(self, paths: Iterable[str]) -> Self:
        """The options for some of the targets, without what is known about others."""
        paths = [*paths]
        narrowed = WithIdentities.narrowed_to(self, paths)  # no super(): the class with slots is another one
        if self.topics is None:
            return narrowed
        return replace(narrowed, topics={path: self.topics[path] for path in paths if path in self.topics})
