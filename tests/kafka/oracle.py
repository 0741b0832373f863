"""The real Kafka as the reference: one Java process answers hundreds of requests.

`Oracle` starts the class kseg.oracle.Oracle and talks to it over its stdin and stdout: a request is a JSON object on one line, an answer a
length (4 bytes, big-endian), a JSON object of that length, and the byte strings whose lengths are in its "parts".

Kafka's classes write where one does not expect it: dumping an index trims the file to whole entries, and dumping a `.timeindex` creates a
missing `.index`. So requests about files work on a private copy (below `Oracle.cwd`), and in the answer the names of the copy are replaced
by the original ones.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.kafka import jars

ANSWER_LIMIT_S = 600.0
END_LIMIT_S = 120.0


class DumpAnswer(NamedTuple):
    """The result of the dump tool. `exception` is "class: message" of what main threw (then `status` is 1), else None."""

    stdout: bytes
    stderr: bytes
    status: int
    exception: str | None


class PartitionAnswer(NamedTuple):
    """A partition as loaded, the result of each step, the state before closing, and the directory after closing."""

    loaded: dict[str, Any]
    found: list[dict[str, Any]]
    ended: dict[str, Any]
    directory: Path


class Answer07(NamedTuple):
    """A 0.7 partition: the number of segments, the offset after the last message, the result of each step, and the directory afterwards."""

    segments: int
    end_offset: int
    found: list[dict[str, Any]]
    directory: Path


class KafkaRaised(Exception):
    """The real class threw. `name` is the Java class of the exception, `message` its text (may be None)."""

    def __init__(self, name: str, message: str | None, trace: str) -> None:
        super().__init__(trace)
        self.name = name
        self.message = message


class Oracle:
    """A running oracle; use as a context manager. `cwd` must be a directory of its own."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd.resolve()
        self._copies = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with (self.cwd / "oracle.err").open("wb") as errors:
            self._process = subprocess.Popen(
                jars.brief_java_command("kseg.oracle.Oracle"),
                cwd=self.cwd,
                env=jars.java_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        if error is None and process.returncode:
            raise RuntimeError(f"the oracle ended with {process.returncode} when its input did")

    # --- the dump tool -------------------------------------------------------------------------------------

    def dump(self, args: Sequence[str | os.PathLike[str]], cwd: Path | None = None) -> DumpAnswer:
        """Run DumpLogSegments with `args` on copies of the files named by --files; the answer carries the given names.

        Relative names start from `cwd` (default: `self.cwd`). The other files with the same base offset are copied as well.
        """
        base = self.cwd if cwd is None else cwd.absolute()
        texts = [os.fspath(arg) for arg in args]
        at = next(
            (i for i, text in enumerate(texts) if text == "--files" or text.startswith("--files=")), None
        )
        if at is None or (texts[at] == "--files" and at + 1 == len(texts)):
            return self.dump_in_place(texts)
        inline = texts[at].startswith("--files=")
        given = texts[at].removeprefix("--files=") if inline else texts[at + 1]
        copies = {name: self._copy_of_segment(base / name) for name in given.split(",") if name}
        joined = ",".join(copies.get(name, "") for name in given.split(","))
        texts[at : at + (1 if inline else 2)] = ["--files", joined]
        answer = self.dump_in_place(texts)
        for name, copy in copies.items():
            answer = _renamed(answer, name, str(base / name), copy)
            shutil.rmtree(Path(copy).parent)
        return answer

    def dump_in_place(self, args: Sequence[str]) -> DumpAnswer:
        """Run DumpLogSegments with `args` as they are. It may write to the files."""
        head, (stdout, stderr) = self.ask("dump", args=list(args))
        name, message = head["exception"], head.get("message")
        exception = None if name is None else name if message is None else f"{name}: {message}"
        return DumpAnswer(stdout, stderr, head["status"], exception)

    def copy(self, path: Path) -> Path:
        """A private writable copy of a file or directory, with its name and modification times."""
        target = self._fresh_directory() / path.name
        if path.is_dir():
            shutil.copytree(path, target, symlinks=True)
        else:
            shutil.copy2(path, target)
        return target

    def _fresh_directory(self) -> Path:
        self._copies += 1
        target = self.cwd / f"copy-{os.getpid()}-{self._copies:08d}"
        target.mkdir()
        return target

    def _copy_of_segment(self, source: Path) -> str:
        target = self._fresh_directory()
        stem = source.name.split(".")[0]
        if source.parent.is_dir():
            for sibling in source.parent.iterdir():
                if sibling.name.split(".")[0] == stem and sibling.is_file():
                    shutil.copy2(sibling, target / sibling.name)
        return str(target / source.name)

    # --- small questions -------------------------------------------------------------------------------------

    def utf8(self, data: bytes) -> bytes:
        """`data` decoded as UTF-8 by Java and encoded again. Malformed input becomes U+FFFD by Java's rule."""
        return self.ask("utf8", bytes=data)[1][0]

    def partitions_for_keys(self, keys: Sequence[bytes], count: int) -> list[int]:
        """The partitions that Kafka's producer chooses for these keys in a topic with `count` partitions."""
        texts = [base64.b64encode(key).decode() for key in keys]
        found: list[int] = self.ask("partitions_for_keys", keys=texts, count=count)[0]["partitions"]
        return found

    def compress(self, data: bytes, codec: str, magic: int = 2, level: int | None = None) -> bytes:
        """`data` as Kafka compresses it for batches of `magic` (the framing of lz4 depends on it)."""
        return self.ask("compress", bytes=data, codec=codec, magic=magic, level=level)[1][0]

    def decompress(self, data: bytes, codec: str, magic: int = 2) -> bytes:
        """What Kafka reads from the compressed records of a batch of `magic`."""
        return self.ask("decompress", bytes=data, codec=codec, magic=magic)[1][0]

    def make(self, *batches: dict[str, Any]) -> bytes:
        """Concatenated batches built by MemoryRecordsBuilder.

        A batch: base_offset, magic, codec, level, timestamp_type ("CreateTime", "LogAppendTime"), log_append_time, producer_id,
        producer_epoch, base_sequence, transactional, control, leader_epoch, delete_horizon_ms, last_offset (override), records; with
        "empty" true, the bare header that a cleaner leaves (no records; last_offset, timestamp). A record: offset (default: the next),
        timestamp, key, value (bytes or None), headers [(name, bytes or None)]; in a control batch also marker ("COMMIT", "ABORT") with
        coordinator_epoch. All have the defaults of a plain client.
        """
        return self.ask("make", batches=batches)[1][0]

    def messages(self, asked: Sequence[tuple[str, int, Any]]) -> list[tuple[bytes, str]]:
        """For each (class, version, JSON): the bytes of the message and the JSON that its converter prints."""
        lines = [{"class": name, "version": version, "json": values} for name, version, values in asked]
        found = self.ask("messages", messages=lines)[0]["messages"]
        return [(base64.b64decode(data), text) for data, text in found]

    def formatted(
        self, name: str, records: Sequence[tuple[bytes | None, bytes | None]]
    ) -> list[list[str | None]]:
        """What the console consumer's formatter of this class prints for each record ("" for nothing), and the message of its exception."""
        found: list[list[str | None]] = self.ask("format", **{"class": name}, records=records)[0]["found"]
        return found

    # --- segments and indexes --------------------------------------------------------------------------------

    def records(self, file: Path, deep: bool = True) -> list[dict[str, Any]]:
        """Each batch and record of a segment, as lines of "type" batch, record, or error where an iterator threw.

        Names are those of kseg's JSON; keys, values and header values are bytes or None.
        """
        lines = [
            json.loads(line) for line in self.ask("records", file=str(file), deep=deep)[1][0].splitlines()
        ]
        for line in lines:
            if line["type"] == "record":
                line["key"], line["value"] = _bytes(line["key"]), _bytes(line["value"])
                line["headers"] = [(name, _bytes(value)) for name, value in line["headers"]]
        return lines

    def offset_index(self, file: Path, targets: Sequence[int] = ()) -> dict[str, Any]:
        """`entries` and, for each target offset, `found`, as [offset, position]; `insane`: the message of sanityCheck or None."""
        return self.ask("offset_index", file=str(self.copy(file)), targets=list(targets))[0]

    def time_index(self, file: Path, targets: Sequence[int] = ()) -> dict[str, Any]:
        """`entries` and, for each target time, `found`, as [timestamp, offset]; `insane`: the message of sanityCheck or None."""
        return self.ask("time_index", file=str(self.copy(file)), targets=list(targets))[0]

    def epochs(self, file: Path, targets: Sequence[int], log_end_offset: int) -> dict[str, Any]:
        """`entries` [epoch, start offset] of a checkpoint file; for each target epoch, `found` as [epoch, end offset]."""
        fields = {"targets": list(targets), "log_end_offset": log_end_offset}
        return self.ask("epochs", file=str(self.copy(file)), **fields)[0]

    def search(self, file: Path, asks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """FileRecords without indexes. An ask: what = "offset" (offset, position), "timestamp" (timestamp, position,
        start_offset) or "largest_timestamp" (position); an answer has found, or exception and message."""
        found: list[dict[str, Any]] = self.ask("file", file=str(file), ask=list(asks))[0]["found"]
        return found

    def segment(
        self, directory: Path, base_offset: int, asks: Sequence[dict[str, Any]], **options: Any
    ) -> list[dict[str, Any]]:
        """LogSegment on a copy. An ask: what = "offset" (translateOffset), "timestamp" (findOffsetByTimestamp; start_offset),
        "next_offset", "largest_timestamp", "max_timestamp", or "read" (offset, max_bytes, max_position, min_one): its bytes
        are in `data`. Options: config (topic properties), now."""
        copy = str(self.copy(directory))
        head, parts = self.ask("segment", dir=copy, base_offset=base_offset, ask=list(asks), **options)
        return [_with_data(line, parts) for line in head["found"]]

    # --- a whole partition -----------------------------------------------------------------------------------

    def partition(
        self, directory: Path, steps: Sequence[dict[str, Any]] = (), *, in_place: bool = False, **options: Any
    ) -> PartitionAnswer:
        """UnifiedLog.create on a copy (or in place), the steps in order, then close.

        Options: config (topic properties), log_start_offset, recovery_point, clean (False: recover), now, tiered (remote storage is on),
        producer_id_expiration_ms, max_transaction_timeout_ms, high_watermark (default: log end), close ("close" or "handlers": as a crash
        leaves it), delayed (True: also run what a broker schedules for later, such as deleting files). Steps, by what: offset_by_timestamp
        (timestamp; -1 latest, -2 earliest, -3 max), epoch_end (epoch), read (offset, max_bytes, isolation
        LOG_END|HIGH_WATERMARK|TXN_COMMITTED, min_one), aborted (from, to), append (batches, leader_epoch, follower, origin), roll (offset),
        flush, now (ms), high_watermark (offset), log_start_offset (offset), truncate (offset), retain, expire_producers, clean
        (first_dirty_offset, map_bytes, only_offsets), state. Raises KafkaRaised when loading throws; a step that throws has exception and
        message in its line.
        """
        target = directory if in_place else self.copy(directory)
        head, parts = self.ask("partition", dir=str(target), steps=list(steps), **options)
        lines = [_with_data(line, parts) for line in head["found"]]
        return PartitionAnswer(head["loaded"], lines, head["ended"], target)

    # --- 0.7 -------------------------------------------------------------------------------------------------

    def ancient(self, directory: Path, steps: Sequence[dict[str, Any]] = (), **options: Any) -> Answer07:
        """A 0.7 partition (`.kafka` files) opened by Jafka on a copy, the steps in order, then closed.

        Options: recover (default True), roll_bytes, max_message_bytes. Steps: read (offset, max_bytes) and multi (reads) give
        the framed answer as `data`; append (payloads, codec "none" or "gzip") gives offsets; flush.
        """
        copy = self.copy(directory)
        for file in copy.glob("*.kafka"):
            file.rename(file.with_suffix(".jafka"))
        head, parts = self.ask("ancient", dir=str(copy), steps=list(steps), **options)
        for file in copy.glob("*.jafka"):
            file.rename(file.with_suffix(".kafka"))
        lines = [_with_data(line, parts) for line in head["found"]]
        return Answer07(head["segments"], head["end_offset"], lines, copy)

    def messages07(self, file: Path) -> tuple[list[tuple[int, bool, int, bytes]], str | None]:
        """(next_offset, valid, crc, payload) of each message of a 0.7 file, and "class: message" of what ended it early."""
        head, _ = self.ask("ancient_file", file=str(file), base_offset=int(file.name.split(".")[0]))
        found = [(at, valid, crc, base64.b64decode(payload)) for at, valid, crc, payload in head["messages"]]
        return found, None if head["exception"] is None else f"{head['exception']}: {head['message']}"

    # --- the wire ----------------------------------------------------------------------------------------------

    def ask(self, request: str, **fields: Any) -> tuple[dict[str, Any], list[bytes]]:
        """Send one request and wait for the answer. Raises KafkaRaised if the real classes threw."""
        process = self._running()
        assert process.stdin is not None
        deadline = time.monotonic() + ANSWER_LIMIT_S
        process.stdin.write(json.dumps({"do": request, **fields}, default=_base64).encode() + b"\n")
        head: dict[str, Any] = json.loads(
            self._read(int.from_bytes(self._read(4, deadline), "big"), deadline)
        )
        parts = [self._read(length, deadline) for length in head["parts"]]
        if not head["ok"]:
            raise KafkaRaised(head["exception"], head["message"], head["trace"])
        return head, parts

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the oracle is used before it was entered")
        return self._process

    def _read(self, length: int, deadline: float) -> bytes:
        stdout = self._running().stdout
        assert stdout is not None
        data = bytearray()
        while len(data) < length:
            ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = stdout.read(min(length - len(data), 1 << 20)) if ready else None
            if not chunk:
                output = (self.cwd / "oracle.err").read_text(errors="replace")[-4000:]
                raise RuntimeError(f"the oracle {'died' if ready else 'did not answer in time'}\n{output}")
            data += chunk
        return bytes(data)


def _renamed(answer: DumpAnswer, given: str, absolute: str, copy: str) -> DumpAnswer:
    """Replace the names of the copy: by the given ones in stdout and in "unknown file", by absolute ones in other messages."""
    ignored = b"Ignoring unknown file "
    stderr = answer.stderr.replace(ignored + copy.encode(), ignored + given.encode())
    return DumpAnswer(
        answer.stdout.replace(copy.encode(), given.encode()),
        stderr.replace(copy.encode(), absolute.encode()),
        answer.status,
        None if answer.exception is None else answer.exception.replace(copy, absolute),
    )


def _base64(data: object) -> str:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"{type(data).__name__} has no place in a request")
    return base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _with_data(line: dict[str, Any], parts: list[bytes]) -> dict[str, Any]:
    """The line, with the bytes it refers to in place of their number."""
    return {**line, "data": parts[line.pop("part")]} if "part" in line else line
