"""Compare the bindings behind kseg's checksums and codecs, so that the choice can be reviewed.

    python -m bench.bindings [--seconds 0.5]

Three tables: the cost of importing each library (a fresh interpreter each, the best of five), checksums by block size, and decompression of
batches with 12 KiB of content at a ratio of about 3, in MiB of content per second. All read slices of a read-only map, as `verify` does.
The contestants of a line take turns, and each figure is the best of its turns, so a busy machine affects all alike. Libraries that are not
installed are left out.
"""

import argparse
import importlib
import mmap
import random
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from kseg.segment import layout as L
from kseg.segment.codecs import codec as kseg_codec

Call = Callable[[memoryview], Any]

CONTENT_BYTES = 12 * 1024
BATCHES = 200
PIECE_SIZES = (61, 1024, CONTENT_BYTES, 1 << 20)
LIMIT_BYTES = 1 << 24
LIBRARIES = (
    "crc32c",
    "google_crc32c",
    "awscrt.checksums",
    "crcmod.predefined",
    "zlib",
    "isal.isal_zlib",
    "zlib_ng.zlib_ng",
    "deflate",
    "lz4.block",
    "lz4.frame",
    "zstandard",
    "cramjam",
    "snappy",
    "kseg.segment.crc",
    "kseg.segment.codecs.codec",
)


def library(name: str) -> Any:
    """A module, or None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def present(rivals: Iterable[tuple[str, str, Callable[[Any], Call]]]) -> dict[str, Call]:
    """label → call, for the installed contestants (label, module, function that creates the call)."""
    found = {}
    for label, name, make in rivals:
        module = library(name)
        if module is not None:
            found[label] = make(module)
    return found


def mapped(pieces: list[bytes]) -> list[memoryview]:
    """The pieces as slices of one read-only map."""
    blob = b"".join(pieces)
    area = mmap.mmap(-1, len(blob))
    area.write(blob)
    view = memoryview(area).toreadonly()
    slices = []
    position = 0
    for piece in pieces:
        slices.append(view[position : position + len(piece)])
        position += len(piece)
    return slices


def race(rivals: dict[str, Call], slices: list[memoryview], seconds: float) -> dict[str, float]:
    """Seconds per call of each rival, the best of its turns."""
    best = dict.fromkeys(rivals, float("inf"))
    deadline = time.perf_counter() + seconds * len(rivals)
    while time.perf_counter() < deadline:
        for label, call in rivals.items():
            start = time.perf_counter()
            for piece in slices:
                call(piece)
            best[label] = min(best[label], (time.perf_counter() - start) / len(slices))
    return best


def content(seed: int) -> bytes:
    """12 KiB of records that resemble those of an application."""
    source = random.Random(seed)
    words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(3, 9))) for _ in range(60)]
    record = '{{"id":{},"customer":"{}","status":"delivered","note":"{}"}}'
    lines = [
        record.format(source.getrandbits(24), source.choice(words), " ".join(source.choices(words, k=3)))
        for _ in range(CONTENT_BYTES // 60)
    ]
    return "\n".join(lines).encode()[:CONTENT_BYTES]


def import_table() -> None:
    program = "import time; t = time.perf_counter(); import {}; print((time.perf_counter() - t) * 1000)"
    print(f"{'import':<24}{'ms':>8}")
    for name in LIBRARIES:
        turns = []
        for _ in range(5):
            done = subprocess.run(
                [sys.executable, "-c", program.format(name)], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                turns.append(float(done.stdout))
        if turns:
            print(f"{name:<24}{min(turns):8.1f}")


def checksum_table(title: str, rivals: dict[str, Call], seconds: float) -> None:
    print(f"\n{title:<24}" + "".join(f"{size:>9} B" for size in PIECE_SIZES) + "   (MiB/s)")
    columns = []
    for size in PIECE_SIZES:
        slices = mapped([random.Random(size).randbytes(size)] * max(1, min(1000, (8 << 20) // size)))
        columns.append((size, race(rivals, slices, seconds)))
    for label in rivals:
        print(f"{label:<24}" + "".join(f"{size / best[label] / 2**20:>11.0f}" for size, best in columns))


def codec_table(codec: int, make: Callable[[bytes], bytes], rivals: dict[str, Call], seconds: float) -> None:
    contents = [content(seed) for seed in range(BATCHES)]
    blocks = [make(data) for data in contents]
    slices = mapped(blocks)
    for label, call in rivals.items():
        if bytes(call(slices[0])) != contents[0]:
            raise SystemExit(f"{label} does not give the content back")
    ratio = sum(map(len, contents)) / sum(map(len, blocks))
    print(f"\n{L.codec_name(codec)} (1 : {ratio:.1f})")
    best = race(rivals, slices, seconds)
    for label in sorted(rivals, key=best.__getitem__):
        print(f"{label:<32}{CONTENT_BYTES / best[label] / 2**20:>8.0f} MiB/s")


def ours(codec: int) -> dict[str, Call]:
    return {"kseg": lambda block: kseg_codec.decompress(codec, 2, block, LIMIT_BYTES)}


def checksum_tables(seconds: float) -> None:
    from kseg.segment import crc

    castagnoli = present(
        [
            ("crc32c", "crc32c", lambda m: m.crc32c),
            ("google-crc32c (copies)", "google_crc32c", lambda m: lambda piece: m.extend(0, bytes(piece))),
            ("awscrt", "awscrt.checksums", lambda m: m.crc32c),
            ("crcmod", "crcmod.predefined", lambda m: m.mkPredefinedCrcFun("crc-32c")),
        ]
    )
    checksum_table("CRC-32C", {"kseg": crc.crc32c} | castagnoli, seconds)
    plain = present(
        [
            ("zlib", "zlib", lambda m: m.crc32),
            ("isal", "isal.isal_zlib", lambda m: m.crc32),
            ("zlib-ng", "zlib_ng.zlib_ng", lambda m: m.crc32),
            ("deflate", "deflate", lambda m: m.crc32),
        ]
    )
    checksum_table("CRC-32", {"kseg": crc.crc32} | plain, seconds)


def gzip_table(seconds: float) -> None:
    def gzip_object(module: Any) -> Call:
        return lambda block: module.decompressobj(31).decompress(block, LIMIT_BYTES)

    rivals = present(
        [
            ("zlib", "zlib", gzip_object),
            ("isal", "isal.isal_zlib", gzip_object),
            ("zlib-ng", "zlib_ng.zlib_ng", gzip_object),
            (
                "deflate (told the size)",
                "deflate",
                lambda m: lambda block: m.gzip_decompress(block, CONTENT_BYTES),
            ),
            ("cramjam", "cramjam", lambda m: m.gzip.decompress),
        ]
    )
    make = lambda data: kseg_codec.compress(L.GZIP, 2, data)
    codec_table(L.GZIP, make, ours(L.GZIP) | rivals, seconds)


def snappy_table(seconds: float) -> None:
    rivals = present(
        [
            ("cramjam", "cramjam", lambda m: lambda block: m.snappy.decompress_raw(block[20:])),
            ("python-snappy", "snappy", lambda m: lambda block: m.uncompress(block[20:])),
        ]
    )
    make = lambda data: kseg_codec.compress(L.SNAPPY, 2, data)
    codec_table(L.SNAPPY, make, ours(L.SNAPPY) | rivals, seconds)


def lz4_table(seconds: float) -> None:
    rivals = present(
        [
            ("lz4.frame", "lz4.frame", lambda m: m.decompress),
            (
                "lz4.block, header skipped",
                "lz4.block",
                lambda m: lambda block: m.decompress(block[11:-4], uncompressed_size=65536),
            ),
            ("cramjam", "cramjam", lambda m: m.lz4.decompress),
        ]
    )
    make = lambda data: kseg_codec.compress(L.LZ4, 2, data)
    codec_table(L.LZ4, make, ours(L.LZ4) | rivals, seconds)


def zstd_table(seconds: float) -> None:
    def one_shot(module: Any) -> Call:
        context = module.ZstdDecompressor()
        return lambda block: context.decompress(block, max_output_size=131072)

    def streaming(module: Any) -> Call:
        context = module.ZstdDecompressor()
        return lambda block: context.decompressobj().decompress(block)

    rivals = present(
        [
            ("zstandard, one call", "zstandard", one_shot),
            ("zstandard, streaming", "zstandard", streaming),
            ("zstandard, a context each", "zstandard", lambda m: lambda block: one_shot(m)(block)),
            ("cramjam", "cramjam", lambda m: m.zstd.decompress),
        ]
    )
    make = lambda data: kseg_codec.compress(L.ZSTD, 2, data)
    codec_table(L.ZSTD, make, ours(L.ZSTD) | rivals, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description="race the bindings of checksums and codecs")
    parser.add_argument("--seconds", type=float, default=0.5, help="time for each rival of a line")
    seconds = parser.parse_args().seconds
    print(f"Python {sys.version.split()[0]}, zlib {zlib.ZLIB_RUNTIME_VERSION}\n")
    import_table()
    checksum_tables(seconds)
    for table in (gzip_table, snappy_table, lz4_table, zstd_table):
        table(seconds)


if __name__ == "__main__":
    main()
