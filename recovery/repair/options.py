"""The options of `recover`."""

import os
from collections.abc import Callable, Iterator

from kseg.change.run.options import ChangeOptions
from kseg.recovery.policy import LoadSettings, Policy
from kseg.recovery.repair.meta_properties_repair import RequestedIdentity
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.values import dataclass


def no_coordinator(_target: PartitionTarget) -> Iterator[Finding]:
    """The coordinator findings of a partition that no coordinator loads: none."""
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions(ChangeOptions):
    """One run of `recover`.

    is_clean, recovery_point, log_start_offset: None takes the value of the data directory. marked: data directories that count as marked
    although this run, or a killed one before it, removed their marker. is_nested: the copies of several data directories each go
    into a directory of their name below `output`. rebuild: rebuild all side files. repair_bits: restore batches that are valid with one bit
    inverted. topic_id: for a missing partition.metadata. identity: for a lost meta.properties. coordinator_findings: the records of a
    partition that its coordinator fails to load.
    """

    settings: LoadSettings
    policy: Policy = Policy.SALVAGE
    is_clean: bool | None = None
    recovery_point: int | None = None
    log_start_offset: int | None = None
    marked: frozenset[str] = frozenset()
    is_nested: bool = False
    rebuild: bool = False
    repair_bits: bool = False
    mark_clean: bool = False
    topic_id: str | None = None
    identity: RequestedIdentity | None = None
    drop_cache: bool = False
    coordinator_findings: Callable[[PartitionTarget], Iterator[Finding]] = no_coordinator

    def load_settings_of(self, path: str) -> LoadSettings:
        """The settings of the broker that loads a partition directory."""
        return self.settings.of_topic(self.topic_of(path))

    def copy_of(self, log_dir: str | None) -> str | None:
        """The output directory for the copy of a data directory or of a partition in it; None without --output."""
        if self.output is None or log_dir is None or not self.is_nested:
            return self.output
        return os.path.join(self.output, os.path.basename(os.path.abspath(log_dir)))
