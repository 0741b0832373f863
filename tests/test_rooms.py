"""The layout that docs/architecture.md describes, as far as import-linter does not check it: where files are opened and changed, names that
occur only once, and packages of limited size.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.inspection import inventory
from kseg.segment.partition.names import Role
from tests.support.paths import ROOT

ROOMS = (
    "cli",
    "spark",
    "recovery",
    "compaction",
    "inspection",
    "internal_topics",
    "change",
    "jobs",
    "segment",
)

CALLS = {
    "os": {
        *("open", "write", "pwrite", "ftruncate", "truncate", "fsync", "copy_file_range", "sendfile"),
        *("link", "symlink", "rename", "replace", "unlink", "remove", "mkdir", "makedirs", "rmdir"),
        *("utime", "chmod", "mkfifo", "posix_fallocate"),
    },
    "mmap": {"mmap"},
    "shutil": {"rmtree", "copy", "copy2", "copyfile", "copytree", "move"},
    "tempfile": {"mkstemp", "mkdtemp", "TemporaryFile", "NamedTemporaryFile", "TemporaryDirectory"},
    "io": {"open", "FileIO"},
}
METHODS = {"read_text", "read_bytes", "write_text", "write_bytes"}

# module → why it opens, maps or changes files itself
DOORS = {
    "segment/files.py": "maps every input",
    "segment/input_stream.py": "reads a pipe or standard input",
    "segment/opening.py": "opens every input",
    "segment/memory.py": "anonymous memory",
    "segment/mounts.py": "reads the kernel's mount table",
    "segment/new_files.py": "creates files and directories",
    "segment/storage/archive_bytes.py": "reads a tar archive",
    "segment/storage/local_copy.py": "unnamed files for what is on no disk",
    "segment/storage/tar_archive.py": "an unnamed file for what was decompressed",
    "segment/unreadable.py": "reads around bad sectors",
    "change/apply/anchors.py": "walks paths by descriptors, never through a link",
    "change/apply/append_files.py": "extends and cuts the files of an append",
    "change/apply/disk.py": "every change of a directory, one method each, so that tests can fail them",
    "change/apply/journal_signature.py": "reads and stores the key that journals are signed with",
    "change/apply/lock.py": "locks files",
    "change/apply/room.py": "tries how much of the room that is left root may use",
    "change/apply/scratch_file.py": "a file without a name for what does not fit into memory",
    "change/run/partition_lock.py": "byte-range locks on the broker's .lock",
    "cli/manual.py": "writes the man pages; run by developers",
    "cli/streams.py": "writes to stdout",
    "jobs/forked_worker.py": "asks the system how many tasks wait for a processor",
    "jobs/part_worker.py": "pipe and shared memory between processes",
    "jobs/pipes.py": "pipes between processes",
    "jobs/target_worker.py": "pipes between processes",
    "spark/package_shipping.py": "the zip of the package for executors",
    "spark/session.py": "scratch directories of a Spark session",
}

# module names that may occur more than once, apart from a command, its text, and the module that does the work
SHARED_NAMES = {
    "options": "what a command or a data source was asked for",
    "rows": "results as rows of JSON",
    "run": "the work over a whole data directory",
}
# module → why it reads the values of a `Row` or the numbers of a `Finding`. These are output; code that acts on a result or a finding reads
# `Row.result` or `Finding.diagnosis`.
OUTPUT_READERS = {
    "change/run/attempts.py": "writes them to a journal",
    "cli/render.py": "prints them",
    "cli/run_summary.py": "sums them up",
    "cli/group_stream.py": "changes a field of the row of groups",
    "cli/text/list.py": "prints them",
    "inspection/dump/formats.py": "writes them as JSON",
    "inspection/dump/log_json.py": "writes them as JSON",
    "recovery/broker_start/start_check.py": "adds a field to the row of verify",
    "segment/findings.py": "makes a row of a finding",
    "spark/findings_frame.py": "puts them into a DataFrame",
    "spark/source/reader.py": "puts them into a column",
}
# here `values` and `numbers` are also those of decoded messages and of targets
_OTHERS = ("internal_topics/", "jobs/fanout.py", "jobs/target_worker.py")
COMMANDS = {path.stem for path in (ROOT / "cli" / "commands").glob("*.py")}


def _modules() -> Iterator[tuple[str, Path]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path


@functools.cache
def _nodes() -> dict[str, list[ast.AST]]:
    """Module → all nodes of its syntax tree, the module itself first."""
    return {name: [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))] for name, path in _modules()}


def _opens(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "open"
    if not isinstance(function, ast.Attribute):
        return False
    if isinstance(function.value, ast.Name) and function.value.id in CALLS:
        return function.attr in CALLS[function.value.id]
    return function.attr in METHODS


def test_files_are_opened_and_changed_only_in_listed_modules() -> None:
    found = {
        name
        for name, nodes in _nodes().items()
        if any(isinstance(node, ast.Call) and _opens(node) for node in nodes)
    }
    assert found == set(DOORS)


# Packages that read what may be in an object store or a tar archive: they use `segment.storage.places`, not the system.
READERS = (
    *("segment/partition/", "segment/scanning/", "segment/kafka07/", "inspection/", "internal_topics/"),
    *("recovery/verify/", "recovery/loading/", "recovery/broker_start/", "jobs/", "cli/"),
)
LOOKS = {"stat", "lstat", "scandir", "listdir"}
PATH_LOOKS = {"isdir", "isfile", "exists", "lexists", "islink", "realpath", "abspath", "getsize"}
# module → why it uses the system directly
SYSTEM_LOOKS = {
    "cli/doctor/new_metadata_log_steps.py": "doctor examines disks",
    "cli/html/html_document.py": "the report is on a disk",
    "cli/html/html_page.py": "the report is on a disk",
    "cli/version.py": "kseg's own files",
    "inspection/export/output_folder.py": "the output is on a disk",
    "inspection/export/writers.py": "the output is on a disk",
    "inspection/export/run.py": "the output is on a disk",
}


def test_readers_examine_paths_only_through_the_storage_layer() -> None:
    found = set()
    for name, path in _modules():
        if not name.startswith(READERS):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                whose = ast.unparse(node.value)
                if (whose == "os" and node.attr in LOOKS) or (whose == "os.path" and node.attr in PATH_LOOKS):
                    found.add(name)
    assert found == SYSTEM_LOOKS.keys()


def test_results_and_findings_are_not_read_as_output() -> None:
    found = set()
    for name, nodes in _nodes().items():
        if name.startswith(_OTHERS):
            continue
        # methods of a dictionary
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        if any(
            isinstance(node, ast.Attribute) and node.attr in ("values", "numbers") and id(node) not in called
            for node in nodes
        ):
            found.add(name)
    assert found == OUTPUT_READERS.keys()


def test_every_role_of_a_file_can_be_listed() -> None:
    assert set(inventory.KINDS) == set(Role)


def test_module_names_are_unique() -> None:
    places = defaultdict(list)
    for name, path in _modules():
        if path.stem != "__init__":
            places[path.stem].append(name)
    twice = {stem: names for stem, names in places.items() if len(names) > 1 and stem not in SHARED_NAMES}
    assert set(twice) <= COMMANDS
    for stem, names in twice.items():
        # the command, its text, and the module of the library that does the work
        assert len([name for name in names if not name.startswith("cli/")]) <= 1 + (stem == "compact"), names
    assert all(len(places[stem]) > 1 for stem in SHARED_NAMES)


def test_public_class_names_are_unique() -> None:
    places = defaultdict(list)
    for name, (module, *_) in _nodes().items():
        for node in ast.iter_child_nodes(module):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert {cls: names for cls, names in places.items() if len(names) > 1} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_holds_more_than_a_quarter_of_the_product(room: str) -> None:
    lines = {name: path.read_text(encoding="utf-8").count("\n") for name, path in _modules()}
    own = sum(count for name, count in lines.items() if name.startswith(f"{room}/"))
    assert 0 < own <= sum(lines.values()) / 4
