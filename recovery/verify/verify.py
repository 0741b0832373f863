"""The work of `verify`: `verify(target, VerifyOptions) -> Iterator[Event]`, read-only.

Findings and progress, and at the end of each target one row `verified` with its sums; bytes valid + damaged +
padding are always the bytes read.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kseg.jobs.events import Event
from kseg.recovery.verify.options import LEVELS, VerifyOptions
from kseg.recovery.verify.totals import Ledger
from kseg.segment import unreadable
from kseg.segment.errors import UsageError
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import FileTarget, LogDirTarget, PartitionTarget

if TYPE_CHECKING:
    from kseg.jobs.log_splitting import Part
    from kseg.segment.scanning.prevalidated import Claim


class Verify:
    """`verify(target, VerifyOptions) -> Iterator[Event]`; in parts for a cluster (`jobs.log_splitting.Foreseen`)."""

    def __call__(
        self, target: FileTarget | PartitionTarget | LogDirTarget, options: VerifyOptions
    ) -> Iterator[Event]:
        """Everything there is to say about one target. Raises UnreadableInput when it cannot be read at all."""
        if options.level not in LEVELS:
            raise UsageError(f"the level of verify is one of {', '.join(LEVELS)}, not {options.level}")
        ledger = Ledger()
        for event in _work(target, options, ledger):
            if not isinstance(event, Finding) or ledger.admit(event):
                yield event
        for finding in unreadable.taken():
            if ledger.admit(finding):
                yield finding
        yield from ledger.overflow()
        yield ledger.row(target.path)

    def parts(
        self, target: FileTarget | PartitionTarget | LogDirTarget, options: VerifyOptions, part_bytes: int
    ) -> "list[Part]":
        """The logs of a partition, cut where their indexes know of batches."""
        from kseg.recovery.verify.precheck import parts

        return parts(target, part_bytes)

    def claim(self, part: "Part", options: VerifyOptions) -> "Claim":
        """What is sound in a part: checksums, in the deep level records too. Raises UnreadableInput."""
        from kseg.recovery.verify.precheck import claim

        return claim(part, options)

    def believing(self, options: VerifyOptions, claims: "Sequence[Claim]") -> VerifyOptions:
        return replace(options, claims=tuple(claims))


verify = Verify()


def _work(
    target: FileTarget | PartitionTarget | LogDirTarget, options: VerifyOptions, ledger: Ledger
) -> Iterable[Event]:
    match target:
        case PartitionTarget():
            from kseg.recovery.verify.partition_check import verify_partition

            return verify_partition(target, options, ledger)
        case LogDirTarget():
            from kseg.recovery.verify.log_dir_check import verify_log_dir

            return verify_log_dir(target, options, ledger)
        case FileTarget():
            from kseg.recovery.verify.file_check import verify_file

            return verify_file(target, options, ledger)
