"""The state of share groups of Kafka 4.0.0, which were early access. 4.3.1 loads neither of the two partitions (`Deserializing record …
failed`), and no repair of the logs changes that. Keys and values are from a real 4.0.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.internal_topics.coordinator_logs import batch
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of

_SHARE_KEY = "00027367b1b6ad0089a54eb4bfcc8d9b09bd546a00000000"
WRITTEN = {
    "__consumer_offsets-0": [("000b00027367", "00000000000100")],
    "__share_group_state-0": [
        (f"0000{_SHARE_KEY}", "000000000000000000000000ffffffffffffffff0100"),
        (f"0001{_SHARE_KEY}", "0000000000000000000000000000000002000000000000000000000000000000030200010000"),
    ],
}


@pytest.mark.parametrize("name", WRITTEN)
def test_verify_and_recover_agree_on_early_access_share_groups(
    name: str, tmp_path: Path, capfd: Capfd
) -> None:
    partition = tmp_path / "data" / name
    partition.mkdir(parents=True)
    records = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in WRITTEN[name]]
    (partition / f"{0:020d}.log").write_bytes(batch(0, *records))
    found = []
    for command in ("verify", "recover"):
        rows = rows_of(capfd, command, partition, status=1)
        found.append([(row["id"], row["message"]) for row in rows if row.get("severity") == "error"])
    assert found[0] == found[1] != []
    assert all(kind == "coordinator-load-fails" and "Kafka 4.0" in message for kind, message in found[0])
    # the side files are repaired
    assert run(["recover", "--apply", str(partition)]) == 1
    assert "cannot be loaded by its coordinator" in capfd.readouterr().out
    assert run(["verify", str(partition)]) == 1


def test_recover_does_not_read_records_of_an_undamaged_partition(tmp_path: Path, capfd: Capfd) -> None:
    """Reading them took twelve times as long as everything else, only for what `verify` reports."""
    partition = tmp_path / "data" / "__share_group_state-0"
    partition.mkdir(parents=True)
    records = [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in WRITTEN[partition.name]]
    (partition / f"{0:020d}.log").write_bytes(batch(0, *records))
    run(["recover", "--apply", str(partition)])
    capfd.readouterr()
    assert run(["recover", str(partition)]) == 0
    assert run(["verify", str(partition)]) == 1
