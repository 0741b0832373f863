"""`verify`: `verify(target, VerifyOptions) -> Iterator[Event]`, read-only.

Yields findings and progress, and at the end of each target one row `verified` with its totals. Bytes valid + damaged +
padding always equal the bytes read.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kseg.change.apply.running_broker import is_in_use
from kseg.jobs.events import Event
from kseg.recovery.verify.options import LEVELS, VerifyOptions
from kseg.recovery.verify.repeated_reading import confirmed
from kseg.recovery.verify.totals import Totals
from kseg.segment import unreadable
from kseg.segment.errors import UsageError
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import FileTarget, LogDirTarget, PartitionTarget, Target

if TYPE_CHECKING:
    from kseg.jobs.log_splitting import Part
    from kseg.segment.scanning.prevalidated import ValidatedSpans


class Verify:
    """`verify(target, VerifyOptions) -> Iterator[Event]`; on a cluster in parts (`jobs.log_splitting.Prevalidatable`)."""

    def __call__(self, target: Target, options: VerifyOptions) -> Iterator[Event]:
        """All findings about one target, and its totals. Raises UnreadableInput if it cannot be read at all."""
        if options.level not in LEVELS:
            raise UsageError(f"the level of verify must be one of {', '.join(LEVELS)}, not {options.level}")
        totals = Totals()
        yield from self.findings(target, options, totals)
        yield totals.row(target.path, KINDS[type(target)])

    def findings(self, target: Target, options: VerifyOptions, totals: Totals) -> Iterator[Event]:
        """Like `__call__`, without the row of totals, which are in `totals` afterwards. For the data of a running broker, only what several
        readings agree on."""
        if is_in_use(target):
            read = partial(self._findings, target, replace(options, is_in_use=True))
            yield from confirmed(target, read, totals)
        else:
            yield from self._findings(target, options, totals)

    def _findings(self, target: Target, options: VerifyOptions, totals: Totals) -> Iterator[Event]:
        unreadable.begin()  # this process may have read other targets before
        for event in _work(target, options, totals):
            if not isinstance(event, Finding) or (not unreadable.explains(event) and totals.admit(event)):
                yield event
        for finding in self.further(target, options):
            if totals.admit(finding):
                yield finding
        for finding in unreadable.taken():
            if totals.admit(finding):
                yield finding
        yield from totals.overflow()

    def further(self, target: Target, options: VerifyOptions) -> Iterable[Finding]:
        """Hook for findings from other packages about a target; none here. Raises UnreadableInput."""
        return ()

    def parts(self, target: Target, options: VerifyOptions, part_bytes: int) -> "list[Part]":
        """The logs of a partition, split at batches that their indexes know."""
        from kseg.recovery.verify.precheck import parts

        return parts(target, part_bytes)

    def claim(self, part: "Part", options: VerifyOptions) -> "ValidatedSpans":
        """The valid spans of a part: checksums, in the deep level records too. Raises UnreadableInput."""
        from kseg.recovery.verify.precheck import claim

        return claim(part, options)

    def with_validated(self, options: VerifyOptions, claims: "Sequence[ValidatedSpans]") -> VerifyOptions:
        return replace(options, claims=tuple(claims))


KINDS = {FileTarget: "file", PartitionTarget: "partition", LogDirTarget: "log-dir"}
verify = Verify()


def _work(target: Target, options: VerifyOptions, totals: Totals) -> Iterable[Event]:
    match target:
        case PartitionTarget():
            from kseg.recovery.verify.partition_check import verify_partition

            return verify_partition(target, options, totals)
        case LogDirTarget():
            from kseg.recovery.verify.log_dir_check import verify_log_dir

            return verify_log_dir(target, options, totals)
        case FileTarget():
            from kseg.recovery.verify.file_check import verify_file

            return verify_file(target, options, totals)
