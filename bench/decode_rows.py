"""The rows about decoded internal topics: `dump --offsets-decoder` of a 128 MiB segment compared with the real tool."""

from __future__ import annotations

from collections.abc import Iterator

from bench import measure, offsets_corpus
from bench.contest import TIMES, Row
from bench.tools import SEGMENT, Tools

SIZE_BYTES = 128 << 20
_FLAG = "--offsets-decoder"


def decode_rows(tools: Tools) -> Iterator[Row]:
    """One row for the command with its defaults, one with a single process."""
    file = tools.corpus / "__consumer_offsets-7" / SEGMENT
    if not file.exists():
        offsets_corpus.make(file, SIZE_BYTES)
    for name, words in (("offsets", ()), ("offsets-one", ("--jobs", "1"))):
        yield Row(
            name,
            " ".join(("dump", _FLAG, *words, "128 MiB")),
            tools.kseg_turn("dump", *words, _FLAG, file),
            judged_by=TIMES,
            rival="DumpLogSegments",
            rival_turn=tools.tool_turn(_FLAG, files=[file]),
            at_least=10,
            aim=20,
            prepare=lambda: measure.warm(file),
        )
