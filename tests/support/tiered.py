"""Create the objects that the tiered-storage plugin uploads for the segments of a partition directory, by its documented layout."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import zstandard

TOPIC_ID = "MWJ6FHTfRYy67jzwZdeqSQ"
SEGMENT_ID = "tqimKeZwStOEOwRzT3L5o"
SUFFIXES = {"offset": ".index", "timestamp": ".timeindex", "transaction": ".txnindex"}


def upload(
    partition: Path, root: Path, *, chunk_bytes: int = 1000, compression: bool = True, encrypted: bool = False
) -> Path:
    """Upload all segments; returns the directory of the topic."""
    topic, _, number = partition.name.rpartition("-")
    target = root / f"{topic}-{TOPIC_ID}" / number
    target.mkdir(parents=True)
    logs = sorted(partition.glob("*.log"))
    ends = [int(log.stem) for log in logs[1:]]
    for at, log in enumerate(logs):
        following = (
            ends[at] if at < len(ends) else max(int(path.stem) for path in partition.glob("*.snapshot"))
        )
        stem = target / f"{log.stem}-{SEGMENT_ID}{at}"
        chunks = chunk_index(content := log.read_bytes(), chunk_bytes, compression)
        stem.with_name(stem.name + ".log").write_bytes(b"".join(chunks))
        side, named = b"", {}
        for name, path in (
            *((name, log.with_suffix(suffix)) for name, suffix in SUFFIXES.items() if name != "transaction"),
            ("producerSnapshot", partition / f"{following:020d}.snapshot"),
            ("leaderEpoch", partition / "leader-epoch-checkpoint"),
            ("transaction", log.with_suffix(".txnindex")),
        ):
            data = path.read_bytes() if path.exists() else b""
            named[name] = (
                {"position": len(side), "size": len(data)} if data or name != "transaction" else None
            )
            side += data
        stem.with_name(stem.name + ".indexes").write_bytes(side)
        manifest = {
            "version": "1",
            "chunkIndex": manifest_chunks(
                content, [len(chunk) for chunk in chunks], chunk_bytes, compression
            ),
            "segmentIndexes": named,
            "compression": compression,
            "remoteLogSegmentMetadata": {"startOffset": int(log.stem), "endOffset": following - 1},
        }
        if encrypted:
            manifest["encryption"] = {"dataKey": "kek:AA==", "aad": "CgsMDQ=="}
        stem.with_name(stem.name + ".rsm-manifest").write_text(json.dumps(manifest))
    return target.parent


def chunk_index(content: bytes, chunk_bytes: int, compression: bool) -> list[bytes]:
    plain = [content[at : at + chunk_bytes] for at in range(0, len(content), chunk_bytes)]
    return [zstandard.compress(chunk) if compression else chunk for chunk in plain]


def manifest_chunks(
    content: bytes, sizes: list[int], chunk_bytes: int, compression: bool
) -> dict[str, object]:
    common = {"originalChunkSize": chunk_bytes, "originalFileSize": len(content)}
    if compression:
        packed = base64.b64encode(zstandard.compress(encode_sizes(sizes))).decode()
        return {"type": "variable", **common, "transformedChunks": packed}
    return {
        "type": "fixed",
        **common,
        "transformedChunkSize": chunk_bytes,
        "finalTransformedChunkSize": sizes[-1] if sizes else 0,
    }


def encode_sizes(sizes: list[int]) -> bytes:
    """Encode count, base, width, the differences, and the last value in full."""
    if len(sizes) < 2:
        return struct.pack(f">{1 + len(sizes)}i", len(sizes), *sizes)
    base = min(sizes[:-1])
    width = max(1, -(-max(size - base for size in sizes[:-1]).bit_length() // 8))
    body = b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1])
    return struct.pack(">iib", len(sizes), base, width) + body + struct.pack(">i", sizes[-1])
