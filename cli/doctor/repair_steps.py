"""The steps of repairs: the plan and its application, and what to do with a partition that no repair makes sound.

`advice` is the command that the most severe findings suggest. Usually that is `kseg recover`.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace

from kseg.cli.doctor.next_step import NO_PARTIAL_COPIES, NextStep, likewise, move_out
from kseg.cli.next_command import command_line, next_command
from kseg.cli.request import Request
from kseg.inspection.log_dir_host import LogDirHost
from kseg.recovery.repair.meta_properties_repair import OPTION_VALUES, IdentityRepair
from kseg.segment.counted import counted, shown_of
from kseg.segment.diagnosis import DoubtfulLogStart, InvalidBytes
from kseg.segment.findings import ERROR, WARNING, Finding
from kseg.segment.layout import LOG_SUFFIX
from kseg.segment.partition.names import COPYING_SUFFIX
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shell_word, shown_path
from kseg.segment.values import dataclass

_RECOVER = "kseg recover"
_LISTED = 5  # segments with a step of their own
_HINTED_PATHS = 8  # as suggested by `verify`
_SOURCES_OF_VALUES = (
    "the values that meta.properties had (node.id is in server.properties, cluster.id in "
    "meta.properties of any other node, directory.id in the output of `kseg metadata`)"
)


@dataclass(slots=True)
class Repairs:
    """hints: the suggested commands by severity, each with its paths. is_half_done: whether a run of kseg was killed in the middle of a
    change. absent_journals: of such changes, on disks that are not mounted. has_unreadable: whether bytes cannot be read.
    has_linked_directories: whether `recover` needs --follow-links. flipped_batches: how many are valid with one bit inverted. unloadable:
    partitions that a broker fails to load before and after a repair. left_damaged: partitions in which a repair changes nothing, with the
    damage that it leaves. doubtful_starts: logs that may have lost their log start offset, with the offset. lost_logs: indexes of
    segments whose logs are missing."""

    request: Request
    hints: dict[str, dict[str, dict[str, None]]] = field(default_factory=dict)
    is_half_done: bool = False
    absent_journals: list[str] = field(default_factory=list)
    has_unreadable: bool = False
    has_linked_directories: bool = False
    flipped_batches: int = 0
    unloadable: list[str] = field(default_factory=list)
    left_damaged: dict[str, str] = field(default_factory=dict)
    doubtful_starts: dict[str, int] = field(default_factory=dict)
    lost_logs: list[str] = field(default_factory=list)

    def note_kind(self, finding: Finding) -> None:
        """Note what changes the repair of everything else."""
        if finding.id == "half-done-journal":
            self.is_half_done = True
            self.absent_journals += [] if places.lexists(finding.path) else [finding.path]
        self.has_unreadable |= finding.id == "unreadable"
        self.has_linked_directories |= finding.id == "linked-directory"
        if finding.id == "segment-missing":
            self.lost_logs.append(finding.path)
        if isinstance(finding.diagnosis, InvalidBytes):
            self.flipped_batches += len(finding.diagnosis.flipped)

    def take(self, finding: Finding) -> None:
        """Note the command that a finding suggests."""
        if isinstance(finding.diagnosis, DoubtfulLogStart):
            self.doubtful_starts[finding.path] = finding.diagnosis.offset
        else:
            self.hints.setdefault(finding.severity, {}).setdefault(finding.hint, {})[finding.path] = None

    @property
    def has_errors(self) -> bool:
        return bool(self.hints.get(ERROR))

    def advice(self, left_out: Collection[str]) -> str:
        """The command that the most severe findings suggest; empty without findings. left_out: directories of metadata logs that a repair
        would make worse."""
        hints = self.hints.get(ERROR) or self.hints.get(WARNING) or {}
        left = {*left_out, *self.left_damaged}
        others = {
            hint: [path for path in paths if left.isdisjoint((path, os.path.dirname(path)))]
            for hint, paths in hints.items()
        }
        others = {hint: paths for hint, paths in others.items() if paths}
        if not others:
            return ""
        if not left_out:
            shown = {hint: paths[:_HINTED_PATHS] for hint, paths in others.items()}
            return next_command(shown, "doctor", self.request)
        partitions = dict.fromkeys(
            path if places.isdir(path) else os.path.dirname(path)
            for paths in others.values()
            for path in paths
        )
        return next_command(others, "doctor", replace(self.request, paths=tuple(partitions)))


def find_lost_logs(repairs: Repairs) -> Iterator[NextStep]:
    """No repair can restore a segment whose log is gone; it removes the indexes."""
    shown = shown_of(len(repairs.lost_logs), _LISTED)
    for index in repairs.lost_logs[:shown]:
        directory, name = os.path.split(index)
        partition, log = os.path.basename(directory), f"{os.path.splitext(name)[0]}{LOG_SUFFIX}"
        yield NextStep(
            f"{log} of {shown_path(partition)} is missing, empty, or has another segment's batches, and no repair can restore it. If it is anywhere on this machine (in a backup, or on "
            "a disk that is not mounted), copy it back before the repair; if another replica has the records, its directory will do as well.",
            f"find / -type f -name {log} -path {shell_word(f'*{partition}*')} -not -empty {NO_PARTIAL_COPIES}",
        )
    command = command_line("verify", {"--verbose": True}, repairs.request)
    yield from likewise(len(repairs.lost_logs) - shown, "segment", command)


def copy_open_logs(repairs: Repairs, hosts: Iterable[LogDirHost]) -> Iterator[NextStep]:
    """A running broker still has a log open that somebody has deleted, and serves it; once it stops, the log is gone (observed with
    4.3.1). hosts: the data directories."""
    process_ids = {os.path.normpath(host.path): host.broker_process_id for host in hosts}
    for index in repairs.lost_logs[: shown_of(len(repairs.lost_logs), _LISTED)]:
        log = f"{os.path.splitext(index)[0]}{LOG_SUFFIX}"
        directory = os.path.dirname(os.path.normpath(log))
        process_id = process_ids.get(os.path.dirname(directory))
        if process_id and not places.lexists(log):
            name = os.path.join(os.path.basename(directory), os.path.basename(log))
            yield NextStep(
                f"{shown_path(name)} was deleted, and the broker may still have it open: copy it back before the broker stops, and it is gone. "
                "If the disk has no room for it, copy it to another one.",
                # the copy gets its name when it is complete: find ends with status 0 when it is not, and this step would not be shown again
                f"find /proc/{process_id}/fd -lname {shell_word(f'*/{name} (deleted)')} -exec sh -c "
                f"""'cp -p "$1" "$2{COPYING_SUFFIX}" && sync -f "$2{COPYING_SUFFIX}" && mv -T "$2{COPYING_SUFFIX}" "$2"' """
                f"- {{}} {shell_quoted(log)} ';'",
            )


def is_recover(advice: str) -> bool:
    return advice.startswith(_RECOVER)


def repair_steps(
    repairs: Repairs, advice: str, values_needed: Mapping[str, IdentityRepair], *, is_one_log_dir: bool
) -> Iterator[NextStep]:
    """The plan, and the same with --apply. advice: the command of the plan. values_needed: those of lost meta.properties that only the user
    knows, by log dir. is_one_log_dir: whether one was examined."""
    plain, with_bits = _RECOVER, ""
    given: dict[str, object] = {"--apply": True}
    if repairs.flipped_batches:
        given["--repair-bits"] = True
        advice, plain = advice.replace(plain, f"{plain} --repair-bits", 1), f"{plain} --repair-bits"
        batches = counted(repairs.flipped_batches, "damaged batch")
        with_bits = f" (--repair-bits restores {batches}, in which one bit is inverted, instead of removing the records)"
    if repairs.has_unreadable:
        yield NextStep(
            "The disk is failing, and every further read may make it worse. Write a repaired copy of what can be read to another disk.",
            f"{advice} --output {shell_quoted('repaired')}",
        )
    yield NextStep("See what a repair would do; nothing is changed.", advice)
    how = "Or repair in place, if the disk still takes writes" if repairs.has_unreadable else "Repair"
    how += with_bits
    if repairs.has_linked_directories:
        how += " (--follow-links includes directories that are reached through links)"
        given["--follow-links"] = True
    if not values_needed:
        yield NextStep(
            f"{how}; `kseg undo` reverts it.",
            advice.replace(plain, " ".join([_RECOVER, *given]), 1),
        )
    for repair in values_needed.values():
        paths = repairs.request.paths if is_one_log_dir else repair.together
        wanted = {**given, **{name: OPTION_VALUES[name] for name in repair.needed}}
        instead = (
            " A broker with ZooKeeper (3.9 or older) starts without it, and writes it."
            if repair.may_be_of_zookeeper
            else ""
        )
        yield NextStep(
            f"{how} with {_SOURCES_OF_VALUES}; `kseg undo` reverts it.{instead}",
            command_line("recover", wanted, replace(repairs.request, paths=paths)),
        )


def bring_back(repairs: Repairs) -> Iterator[NextStep]:
    for partition, doubt in repairs.left_damaged.items():
        yield NextStep(
            f"No repair changes {shown_path(os.path.basename(partition))}: {doubt}. What is lost has to come from another replica or a backup.",
            f"kseg verify {shell_quoted(partition)}",
        )


def confirm_log_starts(repairs: Repairs) -> Iterator[NextStep]:
    """No file shows whether records were deleted, so the user has to decide."""
    for partition, offset in repairs.doubtful_starts.items():
        yield NextStep(
            f"If the records of {shown_path(os.path.basename(partition))} below offset {offset} were deleted (kafka-delete-records.sh), a "
            "broker serves them again: see which repair keeps them deleted. If not, there is nothing to do.",
            f"kseg recover --log-start-offset {offset} {shell_quoted(partition)}",
            is_due=False,
        )


def set_unloadable_aside(repairs: Repairs) -> Iterator[NextStep]:
    for partition in repairs.unloadable:
        yield move_out(
            f"A broker fails on {shown_path(os.path.basename(partition))}, and no repair changes that: with "
            "the broker stopped, move it out of the data directory. The broker recreates it empty and "
            "fetches what other replicas have, provided that one of them leads; records that only this one "
            "has remain in the moved directory, for `kseg export`.",
            partition,
        )
