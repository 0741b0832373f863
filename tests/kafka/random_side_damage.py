"""Random damage to the side files of a partition directory, and leftovers of interrupted operations."""

from __future__ import annotations

from fixtures.healthy import T0, TOPIC_ID
from kseg.segment import layout as L
from kseg.segment.partition.names import segment_file_name
from kseg.segment.sidecar.index import OffsetIndexEntry
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry, encode_snapshot
from kseg.segment.sidecar.txn_index import AbortedTxn, encode_txn_index
from tests.kafka.random_ground import EPOCHS, SIDE_SUFFIXES, Ground
from tests.kafka.random_logs import DAY_MS
from tests.support.encoders import encode_offset_index

# --- damaging side files


def remove_side_files(ground: Ground) -> None:
    for _ in range(ground.rng.choice((1, 1, 2, 4))):
        if path := ground.a_side_file():
            path.unlink()


def remove_all_of_a_kind(ground: Ground) -> None:
    for path in ground.files(*ground.rng.sample(SIDE_SUFFIXES, ground.rng.choice((1, 1, 2, 4)))):
        path.unlink()


def damage_a_side_file(ground: Ground) -> None:
    if path := ground.a_side_file():
        data = bytearray(path.read_bytes())
        match ground.rng.randrange(5):
            case 0 if data:
                data[ground.rng.randrange(len(data))] ^= 1 << ground.rng.randrange(8)
            case 1 if data:
                del data[ground.rng.randrange(len(data)) :]
            case 2:
                data += ground.rng.randbytes(ground.rng.choice((1, 7, 34, 48)))
            case 3:
                data = bytearray(ground.rng.randbytes(ground.rng.choice((0, 3, 8, 12, 96))))
            case _:
                data = bytearray(b"no such file\n")
        path.write_bytes(data)


def pad_side_files(ground: Ground) -> None:
    """Indexes as a crash leaves them: at full size, or almost."""
    full = ground.settings.segment_index_bytes
    for suffix, slot in ((L.OFFSET_INDEX_SUFFIX, 8), (L.TIME_INDEX_SUFFIX, 12)):
        for path in ground.files(suffix)[-ground.rng.choice((1, 1, 2)) :]:
            size = ground.rng.choice((full // slot * slot, full // slot * slot, 3 * slot, 96))
            if path.stat().st_size < size and ground.rng.random() < 0.9:
                path.write_bytes(path.read_bytes().ljust(size, b"\0"))


def mislead_an_index(ground: Ground) -> None:
    """Entries that increase and point to arbitrary positions."""
    path, log = ground.a_side_file(L.OFFSET_INDEX_SUFFIX), ground.a_log()
    if path is None or log is None:
        return
    base = int(path.name.split(".")[0])
    if ground.rng.random() < 0.5:
        log = path.with_suffix(L.LOG_SUFFIX)
    size = log.stat().st_size if log.exists() else 100
    places = [ground.rng.randrange(size + 50), *(ground.bounds(log) if log.exists() else [])]
    offsets = sorted(ground.rng.sample(range(1, 200), ground.rng.randint(1, 3)))
    positions = sorted(ground.rng.choices(places, k=len(offsets)))
    entries = [OffsetIndexEntry(base + offset, at) for offset, at in zip(offsets, positions, strict=True)]
    path.write_bytes(encode_offset_index(entries, base))


def stray_snapshots(ground: Ground) -> None:
    names = ground.files(L.SNAPSHOT_SUFFIX)
    data = ground.rng.choice(names).read_bytes() if names else encode_snapshot(())
    for _ in range(ground.rng.choice((1, 2, 4))):
        offset = ground.rng.randint(0, min(ground.log_end, 10**6) + 20)
        (ground.directory / segment_file_name(offset, L.SNAPSHOT_SUFFIX)).write_bytes(data)


def false_snapshot(ground: Ground) -> None:
    """A well-formed snapshot that contradicts the log."""
    rng = ground.rng
    entries = []
    for producer_id in rng.sample((1, 2, 17, 33, 49, 4000, 9), rng.randint(1, 4)):
        has_batch, is_open = rng.random() < 0.7, rng.random() < 0.4
        offset = rng.randint(0, min(ground.log_end, 10**6) + 1)
        entries.append(
            ProducerSnapshotEntry(
                producer_id,
                rng.choice((0, 1, 5)),
                7 if has_batch else -1,
                offset if has_batch else -1,
                2 if has_batch else 0,
                T0 - rng.choice((0, 500, DAY_MS)),
                rng.choice((-1, 0, 4)),
                offset if is_open else None,
            )
        )
    bases = [int(path.name.split(".")[0]) for path in ground.logs()]
    offset = rng.choice([*bases, ground.log_end, rng.randint(0, min(ground.log_end, 10**6) + 1)])
    path = ground.directory / segment_file_name(offset, L.SNAPSHOT_SUFFIX)
    path.write_bytes(encode_snapshot(entries))


def false_txn_index(ground: Ground) -> None:
    if path := ground.a_log():
        base = int(path.name.split(".")[0])
        last = base + ground.rng.choice((-1, 0, 5, 9))
        version = ground.rng.choice((0, 0, 0, 0, 1, 256))
        entries = [AbortedTxn(version, 1, max(0, last - 2), max(0, last), max(1, last + 1))]
        path.with_suffix(L.TXN_INDEX_SUFFIX).write_bytes(encode_txn_index(entries))


def orphan_indexes(ground: Ground) -> None:
    offset = ground.rng.randint(0, min(ground.log_end, 10**6) + 20)
    for suffix in ground.rng.sample(SIDE_SUFFIXES[:3], ground.rng.randint(1, 3)):
        path = ground.directory / segment_file_name(offset, suffix)
        if not path.exists():
            path.write_bytes(bytes(ground.rng.choice((0, 8, 12, 24))))


# --- leftovers


def _copy(ground: Ground, suffix: str, *, some: bool = True) -> None:
    log = ground.a_log()
    if log is None:
        return
    for ending in (L.LOG_SUFFIX, *SIDE_SUFFIXES):
        path = log.with_suffix(ending)
        if path.exists() and (not some or ground.rng.random() < 0.8):
            (ground.directory / (path.name + suffix)).write_bytes(path.read_bytes())


def leave_deleted(ground: Ground) -> None:
    _copy(ground, L.DELETED_SUFFIX)
    if ground.rng.random() < 0.2:
        (ground.directory / f"{0:020d}-{0:010d}.checkpoint.deleted").write_bytes(b"")


def leave_cleaned(ground: Ground) -> None:
    _copy(ground, L.CLEANED_SUFFIX)


def leave_swap(ground: Ground) -> None:
    """A cleaning of adjacent segments, or a split, interrupted at some step."""
    rng = ground.rng
    logs = ground.logs()
    if not logs:
        return
    first = rng.randrange(len(logs))
    originals = logs[first : first + rng.choice((1, 1, 2, 3))]
    parts = [path.read_bytes() for path in originals]
    merged = b"".join(
        part[begin:end]
        for part, path in zip(parts, originals, strict=True)
        for begin, end in zip(ground.bounds(path), ground.bounds(path)[1:], strict=False)
        if rng.random() < 0.7
    )
    base = int(originals[0].name.split(".")[0]) + rng.choice((0, 0, 0, 0, 1))
    (ground.directory / segment_file_name(base, L.LOG_SUFFIX + L.SWAP_SUFFIX)).write_bytes(merged)
    for suffix, content in ((L.OFFSET_INDEX_SUFFIX, b""), (L.TIME_INDEX_SUFFIX, b"")):
        if rng.random() < 0.8:
            (ground.directory / segment_file_name(base, suffix + L.SWAP_SUFFIX)).write_bytes(content)
    if rng.random() < 0.2:
        data = originals[0].with_suffix(L.TXN_INDEX_SUFFIX)
        content = data.read_bytes() if data.exists() else b""
        name = segment_file_name(base, L.TXN_INDEX_SUFFIX + L.SWAP_SUFFIX)
        (ground.directory / name).write_bytes(content)
    for path in originals:
        fate = rng.random()
        for ending in (L.LOG_SUFFIX, *SIDE_SUFFIXES):
            old = path.with_suffix(ending)
            if old.exists() and fate < 0.3:
                old.rename(ground.directory / (old.name + L.DELETED_SUFFIX))
            elif old.exists() and fate < 0.45:
                old.unlink()


# --- the rest


def odd_names(ground: Ground) -> None:
    """Numbers that are not written as Kafka writes them, and names without a number."""
    rng = ground.rng
    path = ground.a_side_file(*SIDE_SUFFIXES, L.LOG_SUFFIX)
    if path is not None:
        base, suffix = int(path.name.split(".")[0]), path.suffix
        names = (
            f"{base}{suffix}",
            f"{base:020d}.old{suffix}",
            f"x{suffix}",
            f"{base}{suffix}.swap",
            "x.cleaned",
        )
        path.rename(ground.directory / rng.choice(names))


def odd_epochs(ground: Ground) -> None:
    rng = ground.rng
    lines = [(rng.randint(0, 9), rng.randint(0, 60)) for _ in range(rng.randint(0, 4))]
    if rng.random() < 0.7:
        lines.sort()
    text = f"0\n{len(lines)}\n" + "".join(f"{epoch} {offset}\n" for epoch, offset in lines)
    text = rng.choice(
        (text, text, text, text, "", "0\n", "1\n0\n", "0\n2\n0 0\n", "0\n1\na 0\n", "0\n1\n-1 0\n")
    )
    (ground.directory / EPOCHS).write_text(text)
    if rng.random() < 0.3:
        (ground.directory / f"{EPOCHS}.tmp").write_text("0\n")


def other_files(ground: Ground) -> None:
    rng = ground.rng
    name, content = rng.choice(
        (
            ("partition.metadata", f"version: 0\ntopic_id: {TOPIC_ID}"),
            ("partition.metadata", f"version: 0\ntopic_id: {TOPIC_ID}"),
            ("partition.metadata", "version: 0\n"),
            ("partition.metadata", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"),
            ("notes.txt", "kept"),
            (f"{3:020d}.notes", "kept unless a swap covers 3"),
        )
    )
    (ground.directory / name).write_text(content)
