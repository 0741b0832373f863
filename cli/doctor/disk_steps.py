"""The steps for a file system that cannot be written to because it is mounted read-only or full.

They come first: until then nothing can be repaired, and no broker starts. The kernel remounts a file system read-only after an I/O
error, so the first step is to read the kernel log.
"""

import os
from collections.abc import Iterator
from dataclasses import field

from kseg.change.apply.file_flags import FileFlag
from kseg.cli.doctor.next_step import NextStep, likewise
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.inspection.disk_leftovers import Leftover, LeftoverKind
from kseg.inspection.log_dir_host import LogDirHost
from kseg.segment.counted import counted, shown_of
from kseg.segment.diagnosis import UnwritableFile
from kseg.segment.findings import Finding
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shown_path
from kseg.segment.values import dataclass

_LISTED = 5  # partitions with a step of their own
_SCARCE_BYTES = 64 << 20  # with less, there may be no space for the journals and side files of a repair
_WANTED_FREE = "64MiB"
_MARKED = (LeftoverKind.DELETED_FILES, LeftoverKind.UNFINISHED_CLEANING)


@dataclass(slots=True)
class Disks:
    """hosts: the data directories, each with the state of its machine. not_writable: paths that a broker cannot write to. leftovers: files
    that are no longer needed. undo_bytes: held for `undo`."""

    request: Request
    hosts: list[LogDirHost] = field(default_factory=list)
    not_writable: list[tuple[str, UnwritableFile]] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    undo_bytes: int = 0

    def takes(self, finding: Finding) -> bool:
        if isinstance(finding.diagnosis, UnwritableFile):
            self.not_writable.append((finding.path, finding.diagnosis))
            return True
        return False

    @property
    def is_broker_running(self) -> bool:
        return any(host.is_running for host in self.hosts)


def make_writable(disks: Disks, recover: str) -> Iterator[NextStep]:
    """recover: the command of the repair that errors suggest; empty without one."""
    by_mount: dict[str, LogDirHost] = {}
    for host in disks.hosts:
        if host.is_read_only:
            by_mount.setdefault(host.path if host.mount is None else host.mount.point, host)
    for point, host in by_mount.items():
        yield NextStep(
            f"{shown_path(host.path)} is on a file system that is mounted read-only: neither a repair "
            "nor a broker can write there. The kernel remounts a file system read-only after an I/O "
            "error; look for one.",
            "dmesg --level=emerg,alert,crit,err | tail -n 40",
        )
        if recover:
            yield NextStep(
                "If the disk is failing, leave it as it is and write a repaired copy to another one.",
                f"{recover} --output {shell_quoted('repaired')}",
            )
        yield NextStep("Otherwise remount it read-write.", f"mount -o remount,rw {shell_quoted(point)}")
    yield from _give_to_the_broker(disks)


def _give_to_the_broker(disks: Disks) -> Iterator[NextStep]:
    """Lift the flags of files, and change their owner: with one command for all of a data directory."""
    log_dirs = [host.path for host in disks.hosts]
    by_place: dict[tuple[str, str], list[str]] = {}
    for path, why in disks.not_writable:
        containing = (each for each in log_dirs if path == each or path.startswith(os.path.join(each, "")))
        by_place.setdefault((next(containing, path), why.flag), []).append(path)
    shown = shown_of(len(by_place), _LISTED)
    for (log_dir, flag), paths in list(by_place.items())[:shown]:
        is_one, first = len(paths) == 1, shown_path(paths[0])
        place = paths[0] if is_one else log_dir
        around = "it" if paths[0] == log_dir else shown_path(log_dir)
        what = first if is_one else f"{first} and {counted(len(paths) - 1, 'more path')} in {around}"
        if flag:
            yield NextStep(
                f"{what} {'is' if is_one else 'are'} {flag}: neither a broker nor a repair can change "
                "that. Remove the flag, unless it was set on purpose.",
                FileFlag(flag).lift_command(place),
            )
            continue
        owned_rightly = os.path.dirname(places.abspath(place)) if is_one else log_dir
        yield NextStep(
            f"A broker that runs as the owner of the data directory cannot open the logs of {what} for writing: give them to that user.",
            f"chown -R --reference={shell_quoted(owned_rightly)} {shell_quoted(place)}",
        )
    more = sum(len(paths) for paths in list(by_place.values())[shown:])
    yield from likewise(more, "path", command_line("verify", {}, disks.request))


def make_room(disks: Disks, *, keeps_marked: bool) -> Iterator[NextStep]:
    """keeps_marked: what is marked for deletion may still be wanted."""
    marked = [] if keeps_marked else [each for each in disks.leftovers if each.kind in _MARKED]
    if any(host.free_bytes is not None and host.free_bytes < _SCARCE_BYTES for host in disks.hosts):
        full = "The disk is full"
    elif any(host.has_few_inodes for host in disks.hosts):
        full = "The file system has hardly any free inodes"
    else:
        return
    if marked:
        yield NextStep(
            f"{full}: delete the files that the broker has marked for deletion (without --apply, they are only listed).",
            command_line("retain", {"--purge": True, "--apply": True}, disks.request),
        )
    if disks.undo_bytes:
        yield NextStep(
            f"{full}: delete what kseg keeps to undo earlier changes (without --apply, it is only listed).",
            command_line("undo", {"--forget": True, "--apply": True}, disks.request),
        )
    if not disks.undo_bytes and not marked:
        yield NextStep(
            f"{full}, and a repair writes new files before it removes old ones: see which segments could "
            "be deleted (--apply deletes them), or write a repaired copy to another disk (kseg recover "
            "--output).",
            command_line("retain", {"--free": _WANTED_FREE}, disks.request),
        )
