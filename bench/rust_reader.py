"""The Rust reader of `bench/rust_reader`: built once with cargo, then run for its best pass over a log.

It uses krabka-protocol, the fastest reader of format v2 that could be found on crates.io: it validates headers, lengths and CRCs, and if
records are requested, it decompresses each body and walks its records. Unlike kseg it stops at the first invalid batch, and does not
compare offsets or timestamps with the header.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from bench import measure
from bench.contest import Turn
from bench.measure import Sample

PROJECT = Path(__file__).resolve().parent / "rust_reader"
BINARY = PROJECT / "target" / "release" / "rust_reader"
PASSES = 4


def build() -> None:
    """Build the program if it is missing. Raises Failed."""
    if BINARY.exists():
        return
    cargo = shutil.which("cargo")
    if cargo is None:
        raise measure.Failed("cargo is not installed")
    # the crates declare a newer Rust version than they need
    words = ("build", "--release", "--quiet", "--ignore-rust-version", "--manifest-path")
    measure.run([cargo, *words, PROJECT / "Cargo.toml"])


def turn(mode: str, file: Path) -> Turn:
    """The best pass of the reader. mode: `checksums` or `records`."""

    def take() -> Sample:
        ran = measure.run([BINARY, mode, file, str(PASSES)], keep=True)
        return Sample(min(json.loads(line)["seconds"] for line in ran.output.splitlines()))

    return take
