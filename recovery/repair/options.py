"""What `recover` was asked for."""

import os
from collections.abc import Mapping
from dataclasses import field

from kseg.change.apply.keeping import BESIDE, Keeping
from kseg.change.run.shared_run import Shared
from kseg.recovery.policy import LoadSettings, Policy
from kseg.recovery.repair.meta_properties_repair import AskedIdentity
from kseg.segment.partition.topic_identity import WithIdentities
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions(WithIdentities):
    """One run of `recover`. is_clean, recovery_point, log_start_offset: None asks the data directory.

    marked: data directories that count as marked though this run, or a killed one before it, took their marker away.
    apply: change the files; output: make a repaired copy below this directory instead (None: neither, plan only).
    is_nested: the copies of several data directories lie each in a directory of its name below `output`. run_id: names
    the journals of this run. hard_link: unchanged files of the copy are links.
    rebuild: all side files anew. topic_id: to write a missing partition.metadata with.
    identity: to write a lost meta.properties with. keeping: where
    journals and what is taken out go. follow_links: a directory may be a link. accept_unreadable: bytes that cannot be read
    count as lost. retention_ms: by the path of a partition directory, where cleanup.policy has delete and a limit of time is known.
    shared: the work is done by attempts in other processes.
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
    identity: AskedIdentity | None = None
    drop_cache: bool = False
    shared: Shared | None = None
    accept_unreadable: bool = False
    retention_ms: Mapping[str, int] = field(default_factory=dict)

    def retention_of(self, path: str) -> int | None:
        """None: not known, or nothing is deleted by time."""
        return self.retention_ms.get(path)

    def copy_of(self, log_dir: str | None) -> str | None:
        """Where the copy of a data directory goes, and those of its partitions below it; None without --output."""
        if self.output is None or log_dir is None or not self.is_nested:
            return self.output
        return os.path.join(self.output, os.path.basename(os.path.abspath(log_dir)))
