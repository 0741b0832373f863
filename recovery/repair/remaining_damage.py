"""Harmful damage that a repair does not fix: it becomes a doubt about the partition, which is then not reported as valid.

A batch with a right checksum is kept (`recovery.salvage.salvage`), even when a broker's load fails on it or no consumer
gets past it. kseg cannot fix such a batch; a directory with one is not marked clean.

Policy kafka leaves all damage that a broker's load does not read, whether or not the load changes something else. The
first run reports it, and so does every later one. It does not affect a clean-shutdown marker: under one, a broker
leaves the damage as well.
"""

import os
from collections.abc import Iterable
from dataclasses import replace

from kseg.recovery.policy import Policy, Repair
from kseg.segment.findings import ERROR, Finding

# What a repair cannot fix, by its effect on the partition.
HARMFUL = {
    "undecodable-batch": "records that cannot be read",
    "record-count-mismatch": "records that cannot be read",
    "offset-outside-batch": "records that cannot be read",
    "bad-control-record": "records that cannot be read",
    "non-transactional-in-transaction": "a batch that a broker does not load",
    "transaction-collision": "a batch that a broker does not load",
}

# Known only from a checkpoint of the data directory if nothing in the partition is changed: an index or a snapshot that
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


def _is_removed(repair: Repair, finding: Finding) -> bool:
    """Whether the repair removes the bytes that a finding is about."""
    position = finding.position
    return position is not None and any(
        os.path.basename(finding.path) == removed.file
        and removed.position <= position < removed.position + removed.length
        for removed in repair.removed
    )
