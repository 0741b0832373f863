"""The options of `recover`."""

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Self

from kseg.change.apply.keeping import BESIDE, Keeping
from kseg.change.run.shared_run import SharedRun
from kseg.recovery.policy import LoadSettings, Policy
from kseg.recovery.repair.meta_properties_repair import RequestedIdentity
from kseg.segment.partition.topic_identity import WithIdentities
from kseg.segment.partition.topic_settings import SettingsByPath, TopicSettings
from kseg.segment.values import dataclass

_OF_LOAD = ("index_interval_bytes", "segment_index_bytes", "producer_id_expiration_ms")
_NOTHING_KNOWN = TopicSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions(WithIdentities):
    """One run of `recover`. is_clean, recovery_point, log_start_offset: None reads the data directory.

    marked: data directories that count as marked although this run, or a killed one before it, removed their marker. apply:
    change the files; output: make a repaired copy below this directory instead (None: neither, plan only). is_nested: the copies
    of several data directories each go into a directory of their name below `output`. run_id: names the journals of this run.
    hard_link: unchanged files of the copy are links. rebuild: all side files are rebuilt. topic_id: for a missing
    partition.metadata. identity: for a lost meta.properties. keeping: where journals and removed data are stored. follow_links: a
    directory may be a link. accept_unreadable: bytes that cannot be read count as lost. topics: the topic configuration of each
    partition, by path, which takes precedence over `settings`; None: unknown. shared: the work is done by attempts in other
    processes.
    """

    settings: LoadSettings
    policy: Policy = Policy.SALVAGE
    is_clean: bool | None = None
    recovery_point: int | None = None
    log_start_offset: int | None = None
    marked: frozenset[str] = frozenset()
    apply: bool = False
    run_id: str = ""
    follow_links: bool = False
    output: str | None = None
    is_nested: bool = False
    hard_link: bool = False
    keeping: Keeping = BESIDE
    rebuild: bool = False
    mark_clean: bool = False
    topic_id: str | None = None
    identity: RequestedIdentity | None = None
    drop_cache: bool = False
    shared: SharedRun | None = None
    accept_unreadable: bool = False
    topics: SettingsByPath | None = None

    def narrowed_to(self, paths: Iterable[str]) -> Self:
        """The options restricted to some of the targets."""
        paths = [*paths]
        narrowed = WithIdentities.narrowed_to(self, paths)  # no super(): the class with slots is another one
        if self.topics is None:
            return narrowed
        return replace(narrowed, topics={path: self.topics[path] for path in paths if path in self.topics})

    def topic_of(self, path: str) -> TopicSettings:
        """The configuration and identity of a partition directory's topic, as far as known."""
        return (self.topics or {}).get(path, _NOTHING_KNOWN)

    def load_settings_of(self, path: str) -> LoadSettings:
        """The settings of the broker that loads a partition directory."""
        known = self.topic_of(path).settings
        named = {name: known[name.replace("_", ".")] for name in _OF_LOAD if name.replace("_", ".") in known}
        values = {name: int(each.value) for name, each in named.items() if each.value.isdecimal()}
        if all(getattr(self.settings, name) == value for name, value in values.items()):
            return self.settings
        return replace(self.settings, **values)

    def copy_of(self, log_dir: str | None) -> str | None:
        """The output directory for the copy of a data directory or of a partition in it; None without --output."""
        if self.output is None or log_dir is None or not self.is_nested:
            return self.output
        return os.path.join(self.output, os.path.basename(os.path.abspath(log_dir)))
