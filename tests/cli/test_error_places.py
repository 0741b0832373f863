"""The places of errors in the verdicts of `verify` and `doctor`."""

from __future__ import annotations

from pathlib import Path

from kseg.cli.text.verify import ErrorPlaces
from kseg.segment.diagnosis import MissingReplica, ReplicaBehind
from kseg.segment.findings import Finding


def test_error_places_count_missing_partitions(tmp_path: Path) -> None:
    places = ErrorPlaces()
    places.partitions = 8
    assert places.words(errors=2) == ""
    places.finding(Finding("bad-crc", str(tmp_path / "orders-0"), "…"))
    missing, behind = MissingReplica("orders", 1, "id", None), ReplicaBehind("/other", 2, 3, 4)
    places.finding(Finding("replica-missing", str(tmp_path / "orders-1"), "…", diagnosis=missing))
    assert places.words(errors=1) == " in 1 partition that is missing"
    places.finding(Finding("replica-unmade", str(tmp_path / "orders-2"), "…", diagnosis=missing))
    places.finding(Finding("replica-behind", str(tmp_path / "orders-3"), "…", diagnosis=behind))
    assert places.words(errors=2) == " in 2 partitions that are missing"
    places.finding(Finding("replica-behind", str(tmp_path), "…", diagnosis=behind))
    places.add_damaged(errors=5)
    in_partitions = " in 1 of 8 partitions and in 2 that are missing and in 1 that lacks records"
    assert places.words(errors=8) == in_partitions
    assert places.words(errors=9) == f"{in_partitions}, and elsewhere"
