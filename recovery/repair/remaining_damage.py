"""Harmful damage that a repair does not fix: it becomes a doubt about the partition, which is then not reported as valid.

A batch with a valid checksum is kept (`recovery.salvage.salvage`), even when a broker's load fails on it or no consumer
gets past it. kseg cannot fix such a batch, and does not mark a directory that has one as cleanly shut down.

Policy kafka leaves all damage that a broker's load does not read, whether or not the load changes something else. The
first run reports it, and so does every later one. It does not affect a clean-shutdown marker: under one, a broker
leaves the damage as well.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from kseg.change.plan.directory_image import DirectoryImage
from kseg.recovery.policy import Policy, Repair
from kseg.segment.counted import offsets_words
from kseg.segment.diagnosis import InvalidBytes
from kseg.segment.findings import ERROR, Finding
from kseg.segment.partition.names import FileName, Role, parse_file_name

# What a repair cannot fix, by its effect on the partition.
HARMFUL = {
    "undecodable-batch": "records that cannot be read",
    "record-count-mismatch": "records that cannot be read",
    "offset-outside-batch": "records that cannot be read",
    "bad-control-record": "records that cannot be read",
    "non-transactional-in-transaction": "a batch that a broker does not load",
    "transaction-collision": "a batch that a broker does not load",
}

_GAPS = ("offset-gap", "segment-gap")

# Detected only through a checkpoint of the data directory when nothing in the partition changes; otherwise an index or a snapshot that
# extends further is rebuilt.
_BY_CHECKPOINT = ("lost-tail",)


def with_harmful_batches(repair: Repair) -> Repair:
    """The same repair, with a doubt if it keeps a harmful batch."""
    if repair.doubt:
        return repair
    for finding in repair.findings:
        if finding.id in HARMFUL and not _is_removed(repair, finding):
            return replace(repair, doubt=f"contains {HARMFUL[finding.id]} ({finding.id})")
    return repair


def with_remaining_damage(
    repair: Repair, policy: Policy, findings: Iterable[Finding], directory: str
) -> Repair:
    """The repair, with a doubt if errors remain once it is done.

    findings: what policy salvage, which reads every byte, reports for the partition as it will be. directory: the partition's.
    Errors in the data directory's own files do not count: the same run repairs them (`log_dir`).
    """
    if repair.doubt:
        return repair
    for finding in findings:
        is_own = finding.path == directory or os.path.dirname(finding.path) == directory
        if finding.severity == ERROR and is_own and finding.id not in _BY_CHECKPOINT:
            name = os.path.basename(finding.path)
            words = f"{name}: {finding.kind.sentence} ({finding.id}), and is left as it is"
            return replace(repair, left=words) if policy is Policy.KAFKA else replace(repair, doubt=words)
    return repair


def with_coordinator(repair: Repair, findings: Sequence[Finding]) -> Repair:
    """The repair of a partition of a coordinator's topic. findings: the records in it that the coordinator fails to load; salvage keeps
    valid batches, whatever their records say."""
    failed = sum(finding.severity == ERROR for finding in findings)
    if not failed or repair.misplaced:
        return repair
    words = (
        "cannot be loaded by its coordinator (coordinator-load-fails), and no repair of the log changes that"
    )
    return replace(repair, misplaced=words)


def with_metadata_gap(repair: Repair, found: DirectoryImage, *, is_loadable: bool) -> Repair:
    """The repair of a metadata log. found: the directory. is_loadable: whether the node can do without the records that are lost.

    Where offsets are missing that no snapshot covers, the directory stays as found, with a doubt, unless it is loadable: a node fails on
    the first record that refers to a lost one, and one with other voters would never fetch what is missing. With the directory as found,
    such a node truncates the log at the damage when it starts, and fetches the rest.
    """
    if is_loadable:
        return repair
    names = map(parse_file_name, repair.image)
    covered = max((name.base_offset or 0 for name in names if _is_snapshot(name)), default=0)
    missing = [(last + 1, first - 1) for (_, last), (first, _) in pairwise(repair.kept) if first > last + 1]
    gaps = [finding.first_offset for finding in repair.findings if finding.id in _GAPS]
    missing += [(first, first) for first in gaps if first is not None]
    damage = [finding.diagnosis for finding in repair.findings]
    has_bits = any(isinstance(each, InvalidBytes) and each.flipped for each in damage)
    for first, last in missing:
        if last >= covered and not repair.doubt:
            words = (
                f"the metadata log lacks {offsets_words(first, last)}, and no node should start without them, so the log is left as "
                f"it is: {'try --repair-bits, or ' if has_bits else ''}take this directory from another node"
            )
            return replace(repair, image=found, why={}, removed=(), doubt=words)
    return repair


def _is_snapshot(name: FileName) -> bool:
    return name.role is Role.METADATA_SNAPSHOT and name.is_live and name.is_well_formed


def _is_removed(repair: Repair, finding: Finding) -> bool:
    """Whether the repair removes the bytes that a finding is about."""
    position = finding.position
    return position is not None and any(
        os.path.basename(finding.path) == removed.file
        and removed.position <= position < removed.position + removed.length
        for removed in repair.removed
    )
