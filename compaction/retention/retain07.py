"""Retention of a Kafka 0.7 partition (0.7.2: LogManager.cleanupLogs, Log.markDeletedWhile; fact sheet §7.1).

1. Two passes, time before size. Each starts at the oldest file and stops at the first one that is kept.
       time    now − modification time > retention.ms; 0.7 has no timestamps
       size    the bytes still above the limit are at least this file's size
2. There is no high watermark, no log start offset and no policy. The last file may be deleted too: then an empty one is
   created at the log end first. An empty last file is kept instead, with the current time.

0.7 deleted at once. Here files are marked with `.deleted` as by later brokers: a 0.7 broker reads names that end in
`.kafka` and ignores the others.
"""

from collections.abc import Iterator, Sequence

from kseg.change.plan.steps import FileIdentity, Rename, Step, Write
from kseg.compaction.retention.options import Limits, RetainOptions
from kseg.compaction.retention.rules import Candidate, Decision, LogToRetain, Rule, excess_bytes, is_expired
from kseg.segment import layout as L
from kseg.segment.errors import UnreadableInput, UsageError
from kseg.segment.partition.names import Role, parse_file_name, segment_file_name
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class Kafka07Evidence:
    """names: of the `.kafka` files, oldest first, parallel to the candidates."""

    names: tuple[str, ...]
    log_to_retain: LogToRetain


def gather_kafka07(
    directory: str, inputs: tuple[FileIdentity, ...], options: RetainOptions
) -> Kafka07Evidence:
    """Collect the evidence about a 0.7 partition. Raises UsageError for an option that 0.7 does not support, UnreadableInput for a
    directory without a log."""
    if options.log_start_offset is not None or options.high_watermark is not None:
        raise UsageError(
            f"{directory} is a log of Kafka 0.7, which has no log start offset and no high watermark"
        )
    files = sorted(_numbered(inputs), key=lambda numbered: numbered[0])
    if not files:
        raise UnreadableInput(f"cannot read {directory}: no .kafka file in it")
    candidates = tuple(
        Candidate(segment_number, file.size_bytes, file.mtime_ns // 1_000_000)
        for segment_number, file in files
    )
    end = candidates[-1].base_offset + candidates[-1].size_bytes
    log_to_retain = LogToRetain(candidates, candidates[0].base_offset, end, end, options.now_ms)
    return Kafka07Evidence(tuple(file.name for _, file in files), log_to_retain)


def _numbered(inputs: tuple[FileIdentity, ...]) -> Iterator[tuple[int, FileIdentity]]:
    for file in inputs:
        name = parse_file_name(file.name)
        if name.role is Role.KAFKA07_LOG and name.is_live and name.base_offset is not None:
            yield name.base_offset, file


def decide_kafka07(log_to_retain: LogToRetain, limits: Limits) -> Decision:
    """Decide which files are deleted, by the rules above."""
    candidates = log_to_retain.candidates
    count = 0
    while count < len(candidates) and is_expired(log_to_retain, limits, candidates[count]):
        count += 1
    rules = [Rule.TIME] * count
    excess = excess_bytes(candidates[count:], limits)
    while len(rules) < len(candidates) and excess >= candidates[len(rules)].size_bytes:
        excess -= candidates[len(rules)].size_bytes
        rules.append(Rule.SIZE)
    if len(rules) == len(candidates) and not candidates[-1].size_bytes:
        rules.pop()
    first = log_to_retain.upper_bound(len(rules) - 1) if rules else log_to_retain.log_start_offset
    return Decision(tuple(rules), bool(rules) and len(rules) == len(candidates), first)


def kafka07_steps(evidence: Kafka07Evidence, decision: Decision, reasons: Sequence[str]) -> tuple[Step, ...]:
    """The new file first, then the marks, oldest first."""
    steps: list[Step] = []
    if decision.rolls:
        end = evidence.log_to_retain.log_end_offset
        why = f"no other segment would remain, and the log continues at offset {end}"
        steps.append(Write(segment_file_name(end, L.KAFKA07_SUFFIX), (), why))
    for name, reason in zip(evidence.names, reasons, strict=False):
        steps.append(Rename(name, name + L.DELETED_SUFFIX, reason))
    return tuple(steps)
