"""The steps for a file system that cannot be written because it is mounted read-only or full.

They come first: until then nothing can be repaired, and no broker starts. The kernel remounts a file system read-only after an I/O
error, so the first step is to read the kernel log.
"""

import os
from collections.abc import Iterator

from kseg.change.apply.file_flags import FileFlag
from kseg.cli.doctor.next_step import NextStep, likewise
from kseg.cli.doctor.situation import Situation
from kseg.cli.next_command import command_line
from kseg.inspection.disk_leftovers import LeftoverKind
from kseg.inspection.log_dir_host import LogDirHost
from kseg.segment.counted import counted, shown_of
from kseg.segment.findings import ERROR
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shown_path

_LISTED = 5  # partitions with a step of their own
_SCARCE_BYTES = 64 << 20  # with less, there may be no space for the journals and side files of a repair
_WANTED_FREE = "64MiB"
_MARKED = (LeftoverKind.DELETED_FILES, LeftoverKind.UNFINISHED_CLEANING)


def make_writable(situation: Situation) -> Iterator[NextStep]:
    by_mount: dict[str, LogDirHost] = {}
    for host in situation.hosts:
        if host.is_read_only:
            by_mount.setdefault(host.path if host.mount is None else host.mount.point, host)
    for point, host in by_mount.items():
        yield NextStep(
            f"{shown_path(host.path)} is on a file system that is mounted read-only: neither a repair "
            "nor a broker can write there. The kernel remounts a file system read-only after an I/O "
            "error; look for one.",
            "dmesg --level=emerg,alert,crit,err | tail -n 40",
        )
        advice = situation.advice
        if situation.hints.get(ERROR) and advice.startswith("kseg recover"):
            yield NextStep(
                "If the disk is failing, leave it as it is and write a repaired copy to another one.",
                f"{advice} --output {shell_quoted('repaired')}",
            )
        yield NextStep("Otherwise remount it read-write.", f"mount -o remount,rw {shell_quoted(point)}")
    yield from _give_to_the_broker(situation)


def _give_to_the_broker(situation: Situation) -> Iterator[NextStep]:
    """Lift the flags of files, and change their owner: with one command for all of a data directory."""
    log_dirs = [host.path for host in situation.hosts]
    by_place: dict[tuple[str, str], list[str]] = {}
    for path, why in situation.not_writable:
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
                "that. Lift it, unless somebody wants it so.",
                FileFlag(flag).lift_command(place),
            )
            continue
        owned_rightly = os.path.dirname(places.abspath(place)) if is_one else log_dir
        yield NextStep(
            f"A broker that runs as the owner of the data directory cannot open the logs of {what} for writing: give them to that user.",
            f"chown -R --reference={shell_quoted(owned_rightly)} {shell_quoted(place)}",
        )
    more = sum(len(paths) for paths in list(by_place.values())[shown:])
    yield from likewise(more, "path", command_line("verify", {}, situation.request))


def make_room(situation: Situation) -> Iterator[NextStep]:
    if any(host.free_bytes is not None and host.free_bytes < _SCARCE_BYTES for host in situation.hosts):
        full = "The disk is full"
    elif any(host.has_few_inodes for host in situation.hosts):
        full = "The file system has hardly any free inodes"
    else:
        return
    if any(each.kind in _MARKED for each in situation.leftovers):
        yield NextStep(
            f"{full}: delete the files that the broker has marked for deletion (without --apply, they are only listed).",
            command_line("retain", {"--purge": True, "--apply": True}, situation.request),
        )
    if situation.undo_bytes:
        yield NextStep(
            f"{full}: delete what kseg keeps to undo earlier changes (without --apply, it is only listed).",
            command_line("undo", {"--forget": True, "--apply": True}, situation.request),
        )
    if not situation.undo_bytes and not any(each.kind in _MARKED for each in situation.leftovers):
        yield NextStep(
            f"{full}, and a repair writes new files before it removes old ones: see which segments could "
            "be deleted (--apply deletes them), or write a repaired copy to another disk (kseg recover "
            "--output).",
            command_line("retain", {"--free": _WANTED_FREE}, situation.request),
        )
