"""docs/json.md documents every line that a command prints with --json and every field of the line, and everything that it documents is
printed.

The commands run on directories in many states. Each field of a line must be in a section of the page about its command or its type,
including subsections, except within values whose names come from the evidence (a message, a configuration). The types and fields of the
examples and tables must occur in a line, or be listed here with the reason why none of these directories has them. Ninety commands take
some twenty seconds of CPU time.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.registry import COMMANDS
from kseg.internal_topics.transactions.transaction_log import TRANSACTION_STATE
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests import transcripts
from tests.internal_topics.coordinator_logs import T0, batch, key, value, write_segment
from tests.internal_topics.metadata_logs import topic, write_log
from tests.support.contract_dirs import (
    expired_directory,
    expiring_directory,
    groups_of_every_type,
    metadata_of_everything,
    odd_directory,
    uncleaned_directory,
)
from tests.support.group_dirs import FARES, broker, commit
from tests.support.metadata_rows import BROKER, quota
from tests.support.paths import ROOT
from tests.transcript_incidents import INCIDENTS_BY_NAME
from tests.transcripts import in_pipe, stage

PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
Rows = list[tuple[str, dict[str, Any]]]

SIDE_FILES = "Side files"
# values whose own names come from the evidence
FREE = frozenset(
    ["data", "details", "properties", "settings", "codecs", "features", "entity", "findings", "checkpoints", "held", "lines_ignored", "next_dirty_offsets", "log_start_offsets", "control", "value", "key", "connect"]
)  # fmt: skip
# other sections that document lines of a command, by command and type
DOCUMENTED_ELSEWHERE = {
    "dump": (SIDE_FILES,),
    "doctor damage": ("recover",),
    "doctor transaction": ("transactions",),
    "doctor offset": ("groups",),
    "doctor verified": ("summary", "broker-start"),
    "verify verified": ("summary", "broker-start"),
    "lookup lookup": ("record",),
    "lookup transaction": ("transactions",),
    "lookup transactional_id": ("transactions",),
    "recover result": ("retain",),
    "recover summary": ("retain",),
    "compact step": ("recover",),
    "compact result": ("retain",),
    "list remote_segment": ("remote_partition",),
}
FINDING = {"type", "id", "severity", "path", "position", "length", "first_offset", "last_offset", "message"}

INCIDENTS: dict[str, tuple[str, ...]] = {
    "sound": (
        "dump data/orders.00-0 data/recovery-point-offset-checkpoint data/meta.properties data/.kafka_cleanshutdown",
        "dump data/orders.01-1",
        "dump data/orders.00-0/leader-epoch-checkpoint data/orders.00-0/partition.metadata",
        "verify data",
        "doctor data",
        "list data",
        "list --no-count data",
        "recover data",
        "compact --cleanup-policy compact data",
        "retain --retention-bytes 6000 --what-if data",
        "retain --retention-ms 200w --cleanup-policy delete data",
        "retain --free 10KiB --cleanup-policy delete data",
        "lookup --offset 200 data",
        "lookup --timestamp 2023-11-14T22:15:00Z data",
        "lookup --key key-5 data",
        "lookup --key key-5 --partitioner murmur2 --topic orders.00 data",
        "lookup --latest data",
        "read --offset 60 --max-bytes 2KiB data/orders.00-0",
        "what-if --compaction data",
        "export --to json --output out data",
        "append --from events.jsonl data/fresh-0",
        "append --from events.jsonl --apply data/fresh-0",
        "undo --list data/fresh-0",
        "undo data/fresh-0",
        "retain --retention-bytes 6000 --cleanup-policy delete --topic orders.01 --apply data",
        "retain --purge --file-delete-delay-ms 0 data",
        "retain --unmark data",
        "undo --list data",
        "undo --forget data",
        "undo data",
        "metadata data",
        "metadata --history data",
        "verify nowhere data",
    ),
    "crashed": (
        "verify data",
        "doctor data",
        "dump data/orders.00-2",
        "recover data",
        "recover --policy kafka data",
        "recover --apply data",
        "undo data",
        "recover --output repaired data",
        "export --to json --output out --topic orders.00 data",
    ),
    "group-went-back": (
        "groups data",
        "groups --history data",
        "groups --group billing --at 2026-11-22T00:00:00Z data",
        "groups --group nobody data",
        "list --groups data",
        "transactions data",
        "doctor data",
    ),
    "hanging-transaction": (
        "transactions data",
        "lookup --transactional-id till-8 data",
        "doctor data",
        "list data",
    ),
    "replicas": ("verify data", "recover data", "list data", "metadata data", "doctor data"),
    "tiered": ("list --remote data",),
    "two-copies": ("diff backup data",),
}
OF_CAPTURE = (
    "dump {data}/__cluster_metadata-0/quorum-state",
    "dump {data}",
    "verify {data}",
    "list {data}",
    "groups {data}",
    "transactions {data}",
    "metadata {data}",
    "metadata --history {data}",
    "compact {data}",
    "doctor {data}",
)
OF_07 = (
    "dump {data}",
    "verify {data}",
    "list {data}",
    "recover {data}",
    "read --offset 0 --max-bytes 1KiB {data}",
)


OF_ACCESS = ("metadata access/__cluster_metadata-0",)
OF_GROUPS = ("groups groups", "groups --at 2026-11-21T08:43:20Z groups")
OF_ODD = ("list odd", "doctor odd")
OF_EXPIRED = ("doctor expired",)
OF_UNCLEANED = ("doctor uncleaned",)
OF_EXPIRING = ("doctor --now 2027-01-01 expiring",)


@pytest.fixture(scope="module")
def rows(capture_small: Path, legacy_small: Path, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Every line of all these commands, with the command."""
    found: Rows = []
    lines: tuple[str, ...]
    for name, lines in INCIDENTS.items():
        with stage(INCIDENTS_BY_NAME[name].make):
            for line in lines:
                found += _printed(line)
    folder = tmp_path_factory.mktemp("json")
    with contextlib.chdir(folder):
        for make, lines in (
            (metadata_of_everything, OF_ACCESS),
            (groups_of_every_type, OF_GROUPS),
            (odd_directory, OF_ODD),
            (expired_directory, OF_EXPIRED),
            (uncleaned_directory, OF_UNCLEANED),
            (expiring_directory, OF_EXPIRING),
        ):
            make(folder)
            for line in lines:
                found += _printed(line)
    for number, (source, commands) in enumerate(
        [
            (capture_small / "data", OF_CAPTURE),
            (legacy_small / "data" / "0.7" / "1-written", OF_07),
            (legacy_small / "data" / "0.7" / "2-hurt", OF_07),
        ]
    ):
        with contextlib.chdir(folder):
            shutil.copytree(source, str(number))
            for line in commands:
                found += _printed(line.format(data=number))
    return found


def _printed(line: str) -> Rows:
    words = shlex.split(line)
    transcripts.forget()
    _, text = in_pipe([*words[:1], "--json", *words[1:]])
    made = [json.loads(each) for each in text.decode().splitlines() if each.startswith("{")]
    assert made, text
    return [(words[0], row) for row in made]


# --- a line is a line for every reader


# the separators at which str.splitlines splits
SEPARATORS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
ODD_TEXT = f"Ä{SEPARATORS}\u2027\u202a\x84\x86\ue028ß😀"
OF_SEPARATORS = (
    "dump --print-data-log {data}",
    "dump --print-data-log --bytes utf8 {data}",
    "dump --print-data-log --from-offset 1 {data}/orders-0",
    "dump --print-data-log --value-format string {data}",
    "dump --print-data-log --key-format string --raw {data}",
    "lookup --offset 1 {data}/orders-0",
    "read --offset 0 {data}/orders-0",
    "verify {data}",
    "list {data}",
    "groups {data}",
    "transactions {data}",
    "metadata {data}",
    "diff other {data}",
    "doctor {data}",
)


def _with_separators(folder: Path, name: str) -> None:
    """Put the text wherever there can be one: keys, values, header names and values, groups, metadata of commits, transactional ids, users,
    paths."""
    odd = ODD_TEXT.encode()
    user = quota({"user": ODD_TEXT}, "producer_byte_rate", 7.0)
    made = broker(folder, batch(0, commit(7, ODD_TEXT, metadata=ODD_TEXT)), name=name)
    write_log(made / "__cluster_metadata-0", [BROKER, user, *topic("fares", FARES, 2)])
    records = tuple(Record(offset, T0, odd, odd, ((odd, odd), (b"", None))) for offset in range(2))
    write_segment(made / "orders-0", encode_batch(NewBatch(records=records)))
    of = TRANSACTION_STATE
    owner = value(of, 0, 0, producerId=7, transactionStatus=0, transactionPartitions=None)
    write_segment(made / f"{of}-0", batch(0, (key(of, 0, transactionalId=ODD_TEXT), owner)))


def test_json_lines_escape_unicode_line_separators(tmp_path: Path) -> None:
    names = ("data", "odd\x85\u2028\u2029")
    for name in (*names, "other"):
        _with_separators(tmp_path, name)
    with contextlib.chdir(tmp_path):
        for line in OF_SEPARATORS:
            shown = set[str]()
            for data in names:
                words = [word.format(data=data) for word in line.split()]
                status, text = in_pipe([*words[:1], "--json", "--quiet", *words[1:]])
                assert status in (0, 1), (line, text)
                lines = text.decode().splitlines()
                assert len(lines) == text.count(b"\n"), line
                shown.update(_texts([json.loads(each) for each in lines]))
            # at least in a path
            assert any("\u2028" in each for each in shown), line
            if line.split()[0] in ("dump", "lookup", "read", "groups", "transactions", "metadata"):
                assert ODD_TEXT in shown, line


def _texts(found: object) -> Iterator[str]:
    if isinstance(found, Mapping):
        yield from found
        yield from _texts([*found.values()])
    elif isinstance(found, list):
        for each in found:
            yield from _texts(each)
    elif isinstance(found, str):
        yield found


# --- everything printed is documented


def _documented(command: str, kind: str) -> set[str]:
    """The names in the sections about a command and a type."""
    wanted = (
        command,
        kind,
        *DOCUMENTED_ELSEWHERE.get(command, ()),
        *DOCUMENTED_ELSEWHERE.get(f"{command} {kind}", ()),
    )
    text = "\n".join(SECTIONS[name] for name in dict.fromkeys(wanted) if name in SECTIONS)
    names = set(re.findall(r'"([A-Za-z_0-9-]+)":', text))
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for quoted in re.findall(r"`([^`]+)`", prose):
        names.update(re.findall(r"[A-Za-z_0-9-]+", quoted))
    return names


def _names(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield name
            if name not in FREE:
                yield from _names(below)
    elif isinstance(value, list):
        for each in value:
            yield from _names(each)


def test_every_printed_json_field_is_documented(rows: Rows) -> None:
    missing: dict[str, set[str]] = {}
    for command, row in rows:
        kind = row["type"]
        names = [name for name in row if name in FINDING] if kind == "finding" else _names(row)
        unknown = {*names} - _documented(command, kind)
        if unknown:
            missing.setdefault(f"{command} {kind}", set()).update(unknown)
    assert missing == {}, "\n".join(f"{where}: {sorted(names)}" for where, names in missing.items())


def test_every_printed_json_type_is_documented(rows: Rows) -> None:
    printed: dict[str, set[str]] = {}
    for command, row in rows:
        printed.setdefault(command, set()).add(row["type"])
    assert printed.keys() == set(COMMANDS)
    assert {name: types - _types(name) for name, types in printed.items() if types - _types(name)} == {}


def _types(command: str) -> set[str]:
    """The types that the table at the top lists for a command."""
    (line,) = re.findall(rf"^\| `{command}` \| (.*) \|$", PAGE.partition("\n## ")[0], re.MULTILINE)
    entries = {"dump": re.findall(r"`(\w+)`", SECTIONS[SIDE_FILES])}
    of_verify = _types("verify") if command == "doctor" else set()
    return {*re.findall(r"`([a-z_-]+)`", line), *entries.get(command, ()), *of_verify}


# --- everything documented is printed


def _examples() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every example of the page, with its section."""
    for section, text in SECTIONS.items():
        for fence in re.findall(r"```json\n(.*?)```", text, re.DOTALL):
            for example in re.split(r"^(?=\{)", fence, flags=re.MULTILINE)[1:]:
                yield section, json.loads(example)


EXAMPLES = [pytest.param(*each, id=f"{each[0]}-{each[1]['type']}-{n}") for n, each in enumerate(_examples())]


@pytest.mark.parametrize(("section", "example"), EXAMPLES)
def test_every_documented_example_has_the_fields_of_a_printed_line(
    section: str, example: dict[str, Any], rows: Rows
) -> None:
    """An example has the fields of a printed line, in the same order."""
    command = section if section in COMMANDS else example.get("command")
    alike = [row for name, row in rows if row["type"] == example["type"] and command in (None, name)]
    assert alike, "no command prints such a line"
    printed = {name for row in alike for name in _names(row)}
    assert {*_names(example)} - printed - {"…"} == set()


VALUES = frozenset(
    [
        "__consumer_offsets",
        "__share_group_state",
        "classic",
        "consumer",
        "share",
        "streams",
        "ok",
        "unreachable",
        "no-state",
        "forgotten",
        "absent",
        "unknown",
        "live",
        "deleted",
        "cleaned",
        "swap",
        "initializing",
        "initialized",
        "deleting",
    ]
)
# none of these directories has them; tests/kafka/test_groups_broker.py gets them from a broker
NOT_PRINTED: dict[str, set[str]] = {"member": {"topic_id", "subtopology"}, "share_topic": set()}
TABLE_ROWS = [
    pytest.param(section, kind, text, id=f"{section}-{kind}")
    for section, content in SECTIONS.items()
    for kind, text in re.findall(r"^\| `([a-z_-]+)` \| (.*) \|$", content, re.MULTILINE)
    if kind != "type"
]


@pytest.mark.parametrize(("section", "kind", "text"), TABLE_ROWS)
def test_every_documented_field_is_printed(section: str, kind: str, text: str, rows: Rows) -> None:
    alike = [row for name, row in rows if row["type"] == kind and section in (name, SIDE_FILES)]
    assert alike or kind in NOT_PRINTED, "no command prints such a line"
    printed = {name for row in alike for name in _names(row)}
    named = {*re.findall(r"`([a-z_]+)`", text)} - VALUES
    assert not alike or named - printed - NOT_PRINTED.get(kind, set()) == set()
