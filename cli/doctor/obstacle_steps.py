"""The steps for files and directories that prevent a broker's start by their mere presence: a file that a broker cannot read and does not
need, a file with a name that it cannot parse, a file in the place of a directory, a data directory inside another one, and given paths
that are no data directories.

Each was observed with 4.3.1, which fails with it and starts without it (tests/kafka/test_doctor.py).
"""

import os
from collections.abc import Iterator
from dataclasses import field

from kseg.cli.doctor.new_metadata_log_steps import format_command
from kseg.cli.doctor.next_step import NextStep, copy_command, likewise, move_out
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.segment.counted import shown_of
from kseg.segment.findings import ERROR, Finding
from kseg.segment.partition.directory import partition_name
from kseg.segment.partition.names import NAME_BY_ROLE, SEGMENT_ROLES, Role, parse_file_name
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shown_path
from kseg.segment.values import dataclass

_SHOWN = 5
_BOOTSTRAP = NAME_BY_ROLE[Role.BOOTSTRAP_SNAPSHOT]
_QUORUM_STATE = NAME_BY_ROLE[Role.QUORUM_STATE]
_BY_ID = {
    **dict.fromkeys(
        ("journal-missing", "journal-overtaken"),
        "kseg can neither undo nor finish that change, and changes nothing here until it is gone. First copy back what you need from it",
    ),
    "nested-log-dir": "a broker takes it for a partition: it does not start, or sets it aside as stray with everything in it",
}


@dataclass(slots=True)
class Obstacles:
    """in_the_way: paths that prevent a start, with the reason. in_other_case: directories in which files have lost the case of their names.
    linked: files of damaged partitions that are links. given_files, given_empty: paths of the request that are no data directories because
    they are files, or empty. unread: those that cannot be read. unformatted: directories in log.dirs that do not exist or are empty."""

    request: Request
    in_the_way: dict[str, str] = field(default_factory=dict)
    in_other_case: dict[str, None] = field(default_factory=dict)
    linked: list[str] = field(default_factory=list)
    given_files: list[str] = field(default_factory=list)
    given_empty: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    unformatted: list[str] = field(default_factory=list)

    def takes(self, finding: Finding) -> bool:
        if finding.id == "unknown-file" and _has_lost_its_case(finding.path):
            self.in_other_case[os.path.dirname(finding.path)] = None
            return True
        if finding.id == "unknown-file" and finding.path in self.request.paths:
            self.given_files.append(finding.path)
            return True
        why = _why_in_the_way(finding)
        if why:
            self.in_the_way[finding.path] = why
        return bool(why) and finding.id != "unreadable"

    @property
    def come_before_start(self) -> bool:
        return bool(self.in_the_way or self.in_other_case)


def _why_in_the_way(finding: Finding) -> str:
    """Why the path of a finding has to be moved out of the data directory; empty if it may stay."""
    name = os.path.basename(finding.path)
    if name == _BOOTSTRAP and finding.severity == ERROR:
        return "a broker fails on it, and needs it only until there is a metadata log"
    if finding.id == "quorum-state-corrupt" or (finding.id == "unreadable" and name == _QUORUM_STATE):
        return (
            "a broker fails on it, and without it asks the other voters and writes a new one (a voter "
            "thereby forgets its vote of this epoch, so let the others elect a leader first)"
        )
    if finding.id == "bad-file-name":
        parsed = parse_file_name(name)
        if parsed.role in SEGMENT_ROLES and parsed.base_offset is None:
            return "a broker fails to parse its name as an offset"
    if finding.id == "unknown-file" and partition_name(name) is not None and not places.isdir(finding.path):
        return "a broker needs a directory of this name"
    is_odd = (
        places.lexists(finding.path) and not places.isfile(finding.path) and not places.islink(finding.path)
    )
    # a data directory or a partition that cannot be read is also reported by this finding, and stays
    if finding.id == "unreadable-file" and is_odd and parse_file_name(name).is_well_formed:
        return (
            "a broker expects a file of this name, and this is not one; restore the file if you have it "
            "(`kseg recover` rebuilds everything except logs)"
        )
    return _BY_ID.get(finding.id, "")


def _has_lost_its_case(path: str) -> bool:
    """Whether a file would be one of Kafka's if its name were in lower case, and no other file has that name: it went through a file system
    that does not preserve case."""
    folder, name = os.path.split(path)
    own = name.lower()
    is_known = own != name and parse_file_name(own).role is not Role.UNKNOWN
    return is_known and not places.lexists(os.path.join(folder, own))


def restore_case(obstacles: Obstacles) -> Iterator[NextStep]:
    for directory in obstacles.in_other_case:
        yield NextStep(
            f"Files in {shown_path(directory)} have names in the wrong case, and a broker does not find them: restore their names.",
            f"find {shell_quoted(directory)} -maxdepth 1 -type f -name '*[A-Z]*' -exec sh -c "
            """'mv -n "$1" "${1%/*}/$(basename "$1" | tr A-Z a-z)"' - {} ';'""",
        )


def move_obstacles(obstacles: Obstacles) -> Iterator[NextStep]:
    in_the_way = obstacles.in_the_way
    shown = shown_of(len(in_the_way), _SHOWN)
    for path, why in list(in_the_way.items())[:shown]:
        yield move_out(f"Move {shown_path(path)} out of the data directory: {why}.", path)
    more = list(in_the_way)[shown:]
    around = Request(tuple(dict.fromkeys(map(os.path.dirname, more))))
    yield from likewise(len(more), "file", command_line("list", {"--verbose": True}, around))


def linked_files(partition: str) -> Iterator[str]:
    """Kafka's files in a partition directory that are links to files elsewhere; kseg does not change those."""
    for name in sorted(places.listdir(partition)):
        path = os.path.join(partition, name)
        if places.islink(path) and places.isfile(path) and parse_file_name(name).role is not Role.UNKNOWN:
            yield path


def copy_linked_files(obstacles: Obstacles) -> Iterator[NextStep]:
    """Those of partitions that are to be repaired."""
    linked = obstacles.linked
    shown = shown_of(len(linked), _SHOWN)
    for path in linked[:shown]:
        target = places.realpath(path)
        yield NextStep(
            f"{shown_path(path)} is a link to {shown_path(target)}, and `kseg recover` does not change "
            "files through links: replace the link with a copy.",
            copy_command(target, path, how="cp --preserve=all"),
        )
    directories = dict.fromkeys(map(os.path.dirname, linked[shown:]))
    command = f"find {' '.join(map(shell_quoted, directories))} -type l"
    yield from likewise(len(linked) - shown, "link", command)


def no_data_directories(obstacles: Obstacles, cluster_id: str | None, flags: str) -> Iterator[NextStep]:
    """Remove paths from log.dirs, or format them. flags: options of `kafka-storage.sh format` for the quorum."""
    files, request = obstacles.given_files, obstacles.request
    left = tuple(path for path in request.paths if path not in files)
    for path in files:
        yield NextStep(
            f"{shown_path(path)} is a file: a broker with it in log.dirs starts without that directory, "
            "or does not start. Remove it from log.dirs, or restore the intended directory, and examine "
            "the rest.",
            command_line("doctor", {}, Request(left)),
        )
    server_properties = str(request.also.get("--server-properties") or "server.properties")
    for path in {
        places.realpath(path): path for path in (*obstacles.unformatted, *obstacles.given_empty)
    }.values():
        yield NextStep(
            f"{shown_path(path)} is {'empty' if places.lexists(path) else 'missing'}: a broker with it "
            "in log.dirs does not start until it is formatted (first check whether a disk should be "
            "mounted there). Formatting leaves the other directories as they are.",
            format_command(cluster_id, shell_quoted(server_properties), "--ignore-formatted", flags),
        )
