"""The lines of a journal: written with a checksum, and accepted only if every checksum, kind, field and order is right.

A journal is part of the evidence: anyone may have written it, and a disk may have damaged it. The checks here need only its bytes:

    size      at most `LIMIT_BYTES`, and no more values than `_MOST_VALUES`, so that reading it is bounded
    lines     each a JSON object with the fields of its kind and no field twice, in the order of the journal's states
    sum       the last field: checksum of the line and of the previous sum, so that no line can be lost, moved or changed unnoticed
    values    numbers in the range of what they count, names of files in a directory that are not kseg's own

A checksum detects accidents but does not prove who wrote the line; a signature does (module journal_signature). So nothing in an
unsigned journal is carried out unless the disk proves that no byte is lost by it (modules proof, undo_quarantine).
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kseg.change.apply.journal_signature import new_nonce, signature
from kseg.segment.json_line import json_line
from kseg.segment.partition.names import KSEG_DIRECTORY, FileState, Role, parse_file_name

VERSION = 2
PLAN = "plan"
GUARD = "guard"
COPY = "copy"
LIMIT_BYTES = 64 << 20
_MOST_VALUES = 4 << 20
_SUM_HEX = 16
_SUM = re.compile(rb'(.*),"sum":"([0-9a-f]{%d})"\}' % _SUM_HEX, re.DOTALL)
_ORDERS = {
    PLAN: re.compile(r"journal( staged( done)?( undoing( undone)?)?)?"),
    COPY: re.compile(r"journal staged( copy)*( done)?( undoing( undone)?)?"),
    GUARD: re.compile(r"journal( staged( create)*( done)?( undoing( undone)?)?)?"),
}
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_COMMAND = re.compile(r"[a-z][a-z-]{0,31}")
_NAME_BYTES = 255  # longest file name on any file system that a broker runs on
_OURS = (Role.LOCK, Role.KSEG_JOURNAL)
LOG_ROLES = (Role.LOG, Role.KAFKA07_LOG)

Line = Mapping[str, Any]
Check = Callable[[object], None]  # raises ValueError or TypeError


# --- as bytes


def is_id(text: str) -> bool:
    """Whether this is a valid id of a journal; in a data directory it distinguishes the journal's files from others."""
    return _ID.fullmatch(text) is not None and not any(each in text for each in ("-new-", "-old-", "-at-"))


def encoded(line: Line, before: bytes, is_signed: bool = False) -> bytes:
    """A line with its signature and checksum; the first line also has a nonce, which makes it unique to its journal. before: the
    bytes of the lines before it."""
    plain = json_line(line)
    head = plain.removesuffix(b"}\n")
    if is_signed:
        if not before:
            head = b'%s,"nonce":"%s"' % (head, new_nonce())
        head = b'%s,"signature":"%s"' % (head, signature(head, before))
    return b'%s,"sum":"%s"}\n' % (head, _sum(head, _last_sum(before)))


def is_too_large(data: bytes, share: float = 1) -> bool:
    """Whether a journal of these bytes would be too large to read, or above a share of that limit."""
    values = data.count(b",") + data.count(b"[") + data.count(b"{")
    return len(data) > share * LIMIT_BYTES or values > share * _MOST_VALUES


def decoded(data: bytes, location_id: str) -> list[dict[str, Any]]:
    """The lines of a whole journal. Raises ValueError with the fault, as a text that follows its path."""
    if is_too_large(data):
        raise ValueError("it is larger than any journal")
    lines = list[dict[str, Any]]()
    before = b""
    for number, raw in enumerate(data.removesuffix(b"\n").split(b"\n") if data else (), 1):
        match = _SUM.fullmatch(raw)
        if match is None or _sum(match[1], before) != match[2]:
            raise ValueError(
                f"line {number} was changed, or lines before it are missing (its checksum is wrong)"
            )
        before = match[2]
        lines.append(_values(raw, number))
    _check(lines, location_id)
    return lines


def _sum(head: bytes, before: bytes) -> bytes:
    import hashlib  # needed only if there is a journal

    return hashlib.sha256(before + head).hexdigest()[:_SUM_HEX].encode()


def _last_sum(before: bytes) -> bytes:
    match = _SUM.fullmatch(before.removesuffix(b"\n").rpartition(b"\n")[2])
    return b"" if match is None else match[2]


def _values(raw: bytes, number: int) -> dict[str, Any]:
    try:
        values = json.loads(raw, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        raise ValueError(f"line {number} is not a JSON object as kseg writes it") from None
    if not isinstance(values, dict):
        raise ValueError(f"line {number} is not a JSON object as kseg writes it")  # noqa: TRY004  (of the file, not of a caller)
    return values


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a field occurs twice")
    return values


# --- as values


def _check(lines: Sequence[Line], location_id: str) -> None:
    for number, line in enumerate(lines, 1):
        try:
            kind = text(line, "type")
            if number == 1:
                if kind != "journal" or line.get("version") != VERSION:
                    raise ValueError(f"it is not a journal of version {VERSION}")
                if text(line, "id") != location_id:
                    raise ValueError("it is the journal of another change")
            _LINES[kind, text(lines[0], "kind")](line)
        except (KeyError, ValueError, TypeError) as error:
            reason = f"{error} is missing, or unknown" if isinstance(error, KeyError) else error
            raise ValueError(f"line {number} is invalid: {reason}") from None
    if lines:
        order = _ORDERS[lines[0]["kind"]]
        if not order.fullmatch(" ".join(line["type"] for line in lines)):
            raise ValueError("its lines are not in the order in which kseg writes them")


def _header(line: Line) -> None:
    if not _COMMAND.fullmatch(text(line, "command")):
        raise ValueError("its command is unknown")
    text(line, "directory")
    _mtime(line["directory_mtime_ns"])
    _files(line["inputs"])
    for name in (*listed(line["partitions"]), *listed(line.get("new_partitions", []))):
        check_name(name)
    for field in ("quarantine", "after"):
        if line.get(field) is not None:
            text(line, field)


def _plan(line: Line) -> None:
    _header(line)
    for step in listed(line["steps"]):
        row = _mapping(step)
        check_name(row["file"])
        text(row, "why")
        match row["do"]:
            case "rename":
                check_name(row["to"])
            case "truncate" | "write":
                _count(row["size"])
            case "remove":
                pass
            case _:
                raise ValueError("a step does something else")
    if line.get("told") is not None:
        _mapping(line["told"])


def _guard(line: Line) -> None:
    _header(line)
    names = {row[0] for row in line["inputs"]}
    for field in ("grows", "replaces"):
        if not all(isinstance(name, str) and name in names for name in listed(line[field])):
            raise ValueError(f"`{field}` names what was not found")
    _check_grows(names, line["grows"], line["replaces"])
    if not isinstance(line["is_new"], bool):
        raise TypeError("`is_new` is not a boolean")


def _check_grows(names: Iterable[str], grows: Sequence[str], replaces: Sequence[str]) -> None:
    """Whether only the last log of a partition grows, and no log is replaced. Raises ValueError."""
    if any(parse_file_name(name).role in LOG_ROLES for name in replaces):
        raise ValueError("`replaces` names a log")
    last = last_log(names)
    if any(name != last for name in grows):
        raise ValueError("`grows` names another file than the last log")


def last_log(names: Iterable[str]) -> str | None:
    """The log that an append extends, among the files of a partition."""
    logs = [(parse_file_name(name), name) for name in names]
    live = [
        (parsed.base_offset, name)
        for parsed, name in logs
        if parsed.role in LOG_ROLES and parsed.state is FileState.LIVE and parsed.base_offset is not None
    ]
    return max(live)[1] if live else None


def _copies(line: Line) -> None:
    if not _COMMAND.fullmatch(text(line, "command")):
        raise ValueError("its command is unknown")
    directory = text(line, "directory")
    if line["directory_mtime_ns"] is not None:
        _mtime(line["directory_mtime_ns"])
    for path in listed(line["made"]):
        is_around = isinstance(path, str) and os.path.isabs(path) and f"{directory}/".startswith(f"{path}/")
        if not is_around or os.path.normpath(path) != path:
            raise ValueError("it names a directory that is not its own")


def _copy(line: Line) -> None:
    steps = text(line, "name").split("/")
    if len(steps) > 2 or (steps != ["."] and any(step in ("", ".", "..", KSEG_DIRECTORY) for step in steps)):
        raise ValueError("its name is not that of a copy")
    if not isinstance(line["is_whole"], bool):
        raise TypeError("`is_whole` is not a boolean")
    _inode(line["inode"])
    _files(line["files"])
    _files(line["over"])


def _staged(line: Line) -> None:
    _rows(line["files"], _count, _inode, _count, _mtime, _crc)
    _rows(line["kept"], check_name, _inode)
    _rows(line["copied"], check_name, _crc)
    _rows(line["tails"], _count, _crc)


def _by_name(values: object, check: Check) -> None:
    for name, value in _mapping(values).items():
        check_name(name)
        check(value)


def _nothing(_line: Line) -> None:
    return


def check_name(name: object) -> None:
    """A journal may name only files of its directory, and none of kseg's own. Raises ValueError, TypeError."""
    if not isinstance(name, str):
        raise TypeError("a name is not a string")
    is_plain = name and "/" not in name and "\0" not in name and name not in (".", "..", KSEG_DIRECTORY)
    try:
        length = len(os.fsencode(name))
    except UnicodeEncodeError:
        length = _NAME_BYTES + 1
    if not is_plain or length > _NAME_BYTES:
        raise ValueError(f"{name[:40]!r} is not a file name")
    if parse_file_name(name).role in _OURS:
        raise ValueError(f"{name[:40]!r} is kseg's own, or a lock")


def text(line: Line, field: str) -> str:
    """A field with text. Raises KeyError, TypeError."""
    value = line[field]
    if not isinstance(value, str):
        raise TypeError(f"`{field}` is not a string")
    return value


def listed(value: object) -> Sequence[Any]:
    """A field with a list. Raises TypeError."""
    if not isinstance(value, list):
        raise TypeError("a list is missing")
    return value


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("an object is missing")
    return value


def _rows(value: object, *checks: Check) -> None:
    """A list of rows with a value for each of the checks."""
    for row in listed(value):
        if not isinstance(row, list) or len(row) != len(checks):
            raise ValueError(f"a row does not have {len(checks)} values")
        for check, each in zip(checks, row, strict=True):
            check(each)


def _files(value: object) -> None:
    _rows(value, check_name, _count, _mtime, _inode)
    names = [row[0] for row in listed(value)]
    if len({*names}) < len(names):
        raise ValueError("a file occurs twice")


def _number(least: int, most: int, what: str) -> Check:
    def check(value: object) -> None:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{what} is invalid")

    return check


_count = _number(0, (1 << 63) - 1, "a count of bytes or steps")
_mtime = _number(-(1 << 63), (1 << 63) - 1, "a time")
_inode = _number(0, (1 << 64) - 1, "an inode")
_crc = _number(0, (1 << 32) - 1, "a checksum")

_LINES: dict[tuple[str, str], Callable[[Line], None]] = {
    ("journal", PLAN): _plan,
    ("journal", GUARD): _guard,
    ("journal", COPY): _copies,
    ("staged", COPY): _nothing,
    ("copy", COPY): _copy,
    ("done", COPY): _nothing,
    ("staged", PLAN): _staged,
    ("staged", GUARD): lambda line: _by_name(line["kept"], _crc),
    ("create", GUARD): lambda line: check_name(line["name"]),
    ("done", PLAN): _nothing,
    ("done", GUARD): lambda line: _files(line["files"]),
    **{("undoing", kind): lambda line: _by_name(line["holders"], _inode) for kind in (PLAN, GUARD, COPY)},
    **{("undone", kind): _nothing for kind in (PLAN, GUARD, COPY)},
}
