"""The same command prints the same bytes in every run, even where a sample represents all keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.support.command_lines import Capfd

# more than the sample has room for
KEYS = 90_000
NOW_MS = 1_717_200_000_000


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments. Every key is written in the first one, with values of equal size, and again in the second."""
    directory = tmp_path_factory.mktemp("run") / "keys-0"
    directory.mkdir()
    offset = 0
    for _ in range(2):
        log = directory / f"{offset:020d}.log"
        content = []
        for _ in range(KEYS // 3000):
            records = tuple(
                Record(at, NOW_MS - 10**9, b"key %6d" % (at % KEYS), b"v")
                for at in range(offset, offset + 3000)
            )
            content.append(encode_batch(NewBatch(records=records)))
            offset += 3000
        log.write_bytes(b"".join(content))
    (directory / f"{offset:020d}.log").write_bytes(b"")
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("json", [[], ["--json"]], ids=["text", "json"])
def test_compact_names_the_same_keys_in_every_run(partition: Path, json: list[str], capfd: Capfd) -> None:
    line = ["compact", "--cleanup-policy", "compact", "--now", str(NOW_MS), *json, str(partition)]
    output = set()
    for _ in range(3):
        assert run(line) == 1
        output.add(capfd.readouterr().out)
    assert len(output) == 1
    assert "key " in output.pop()
