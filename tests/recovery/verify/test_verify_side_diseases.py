"""Each kind of damage to side files, names and directories produces its findings, and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import diseases as D
from fixtures import side_diseases as S
from fixtures.diseases import InflictedDamage
from tests.support.damaged_dirs import (
    EPOCHS,
    HIGH_WATERMARKS,
    ID,
    INNER,
    LAST,
    LIES,
    LOG_STARTS,
    RECOVERY_POINTS,
    SHIFTED,
    Reported,
    in_log,
    new,
)
from tests.support.verify_helpers import judge

SIDE_DISEASES: list[tuple[str, Callable[[Path], object], Reported]] = [
    ("index_missing", lambda d: S.index_missing(d / f"{INNER}.log"), in_log("index-missing")),
    ("time_index_missing", lambda d: S.time_index_missing(d / f"{INNER}.log"), in_log("time-index-missing")),
    ("index_wrong_entry", lambda d: S.index_wrong_entry(d / f"{INNER}.index"), {SHIFTED}),
    (
        "index_entry_beyond_log",
        lambda d: S.index_entry_beyond_log(d / f"{INNER}.index"),
        {("index-entry-beyond-log", f"{INNER}.index")},
    ),
    (
        "index_zero_tail",
        lambda d: S.index_zero_tail(d / f"{INNER}.index"),
        {("index-zero-tail", f"{INNER}.index")},
    ),
    (
        "time_index_zero_tail",
        lambda d: S.index_zero_tail(d / f"{INNER}.timeindex"),
        {("index-zero-tail", f"{INNER}.timeindex")},
    ),
    (
        "active_index_zero_tail",
        lambda d: S.index_zero_tail(d / f"{LAST}.index"),
        {("index-zero-tail", f"{LAST}.index"), LIES},
    ),
    (
        "index_unsorted",
        lambda d: S.index_unsorted(d / f"{INNER}.index"),
        {("index-not-sorted", f"{INNER}.index")},
    ),
    (
        "time_index_unsorted",
        lambda d: S.index_unsorted(d / f"{INNER}.timeindex"),
        {("time-index-out-of-order", f"{INNER}.timeindex")},
    ),
    (
        "index_bad_size",
        lambda d: S.index_bad_size(d / f"{INNER}.index"),
        {("index-bad-size", f"{INNER}.index")},
    ),
    (
        "time_index_bad_size",
        lambda d: S.index_bad_size(d / f"{INNER}.timeindex"),
        {("index-bad-size", f"{INNER}.timeindex")},
    ),
    (
        "txn_index_bad_size",
        lambda d: S.index_bad_size(d / f"{INNER}.txnindex"),
        {("txn-index-bad-size", f"{INNER}.txnindex")},
    ),
    (
        "time_index_wrong_entry",
        lambda d: S.time_index_wrong_entry(d / f"{INNER}.timeindex"),
        {("time-index-mismatch", f"{INNER}.timeindex")},
    ),
    (
        "txn_index_missing_entry",
        lambda d: S.txn_index_missing_entry(d / f"{INNER}.txnindex"),
        {("txn-index-missing-entry", f"{INNER}.txnindex")},
    ),
    (
        "txn_index_missing",
        lambda d: S.missing(d / f"{INNER}.txnindex"),
        {("txn-index-missing-entry", f"{INNER}.txnindex")},
    ),
    (
        "txn_index_wrong_entry",
        lambda d: S.txn_index_wrong_entry(d / f"{INNER}.txnindex"),
        {("txn-index-wrong-entry", f"{INNER}.txnindex")},
    ),
    (
        "txn_index_bad_version",
        lambda d: S.txn_index_bad_version(d / f"{INNER}.txnindex"),
        {("txn-index-bad-version", f"{INNER}.txnindex")},
    ),
    (
        "snapshot_corrupt",
        lambda d: S.snapshot_corrupt(d / f"{INNER}.snapshot"),
        {("snapshot-corrupt", f"{INNER}.snapshot")},
    ),
    (
        "snapshot_stray",
        lambda d: S.snapshot_stray(d / "metro-0"),
        {("snapshot-stray", f"metro-0/{10**15:020d}.snapshot")},
    ),
    (
        "epoch_file_wrong",
        lambda d: S.epoch_file_wrong(d / "metro-0"),
        {("leader-epoch-file-mismatch", EPOCHS)},
    ),
    (
        "epoch_file_corrupt",
        lambda d: S.epoch_file_corrupt(d / "metro-0"),
        {("leader-epoch-file-corrupt", EPOCHS)},
    ),
    ("epoch_file_missing", lambda d: S.missing(d / EPOCHS), {("leader-epoch-file-missing", "metro-0")}),
    (
        "partition_metadata_corrupt",
        lambda d: S.partition_metadata_corrupt(d / "metro-0"),
        {("partition-metadata-corrupt", "metro-0/partition.metadata")},
    ),
    (
        "partition_metadata_missing",
        lambda d: S.partition_metadata_missing(d / "metro-0"),
        {("partition-metadata-missing", "metro-0")},
    ),
    (
        "leftover_swap",
        lambda d: S.leftover_swap(d / f"{INNER}.log"),
        {("leftover-swap", f"{INNER}.{suffix}.swap") for suffix in ("log", "index", "timeindex")},
    ),
    (
        "leftover_cleaned",
        lambda d: S.leftover_cleaned(d / f"{INNER}.log"),
        {("leftover-cleaned", f"{INNER}.log.cleaned")},
    ),
    (
        "leftover_deleted",
        lambda d: S.leftover_deleted(d / f"{INNER}.log"),
        {("leftover-deleted", f"{INNER}.log.deleted")},
    ),
    ("leftover_tmp", lambda d: S.leftover_tmp(d / EPOCHS), {("leftover-tmp", f"{EPOCHS}.tmp")}),
    ("unknown_file", lambda d: S.unknown_file(d / "metro-0"), {("unknown-file", "metro-0/notes.txt")}),
    ("unknown_file_in_log_dir", lambda d: S.unknown_file(d), {("unknown-file", "notes.txt")}),
    (
        "checkpoint_beyond_log",
        lambda d: S.checkpoint_beyond_log(d / HIGH_WATERMARKS, "metro-0"),
        {("checkpoint-beyond-log", HIGH_WATERMARKS)},
    ),
    (
        "log_start_beyond_end",
        lambda d: S.checkpoint_beyond_log(d / LOG_STARTS, "metro-0"),
        {("log-start-beyond-end", LOG_STARTS)},
    ),
    (
        "checkpoint_corrupt",
        lambda d: S.checkpoint_corrupt(d / HIGH_WATERMARKS),
        {("checkpoint-corrupt", HIGH_WATERMARKS)},
    ),
    (
        "checkpoint_orphan",
        lambda d: S.checkpoint_orphan(d / HIGH_WATERMARKS),
        {("checkpoint-orphan", HIGH_WATERMARKS)},
    ),
    (
        "orphan_index",
        lambda d: S.orphan_index(d / f"{INNER}.log"),
        {("orphan-index", f"{INNER}.{suffix}") for suffix in ("index", "timeindex", "txnindex")}
        | {("segment-missing", f"{INNER}.index"), ("sequence-gap", f"{LAST}.log")}
        | {("snapshot-leftover", f"{INNER}.snapshot")},
    ),
    (
        "segment_gap",
        lambda d: S.segment_gap(d / f"{INNER}.log"),
        {("offset-gap", f"{LAST}.log"), ("sequence-gap", f"{LAST}.log")},
    ),
    (
        "no_segments",
        lambda d: [S.missing(f) for f in (d / "metro-1").glob("0*")],
        {("no-segments", "metro-1")},
    ),
    (
        "meta_properties_missing",
        lambda d: S.missing(d / "meta.properties"),
        {("meta-properties-missing", "data")},
    ),
    (
        "meta_properties_corrupt",
        lambda d: (d / "meta.properties").write_text("version=7\n"),
        {("meta-properties-corrupt", "meta.properties")},
    ),
    ("not_stopped", lambda d: S.missing(d / ".kafka_cleanshutdown"), {("unclean-shutdown", "data")}),
    (
        "clean_shutdown_corrupt",
        lambda d: (d / ".kafka_cleanshutdown").write_text("{"),
        {("clean-shutdown-corrupt", ".kafka_cleanshutdown")},
    ),
    (
        "topic_id_conflict",
        lambda d: (d / "gates.old-0/partition.metadata").write_bytes(
            (d / "metro-0/partition.metadata").read_bytes()
        ),
        {
            ("topic-id-conflict", "metro-0/partition.metadata"),
            ("topic-id-conflict", "metro-1/partition.metadata"),
        },
    ),
    (
        "index_below_base",
        lambda d: D.put(d / f"{INNER}.index", 40, b"\xff\xff\xff\x00"),
        {("index-below-base", f"{INNER}.index")},
    ),
    (
        "bad_file_name",
        lambda d: (d / f"{INNER}.snapshot").rename(d / "metro-0/198.snapshot"),
        {("bad-file-name", "metro-0/198.snapshot")},
    ),
]


# name of the damage → the row of docs/data-directory.md that it proves
EVIDENCE = {
    "index_missing": "index-missing",
    "index_wrong_entry": "offset-index",
    "index_entry_beyond_log": "offset-index",
    "index_unsorted": "offset-index",
    "index_zero_tail": "index-preallocated",
    "active_index_zero_tail": "index-preallocated",
    "time_index_wrong_entry": "time-index",
    "time_index_unsorted": "time-index",
    "index_bad_size": "index-size",
    "time_index_bad_size": "index-size",
    "txn_index_bad_size": "index-size",
    "txn_index_missing_entry": "transaction-index",
    "txn_index_missing": "transaction-index",
    "txn_index_wrong_entry": "transaction-index",
    "txn_index_bad_version": "transaction-index",
    "snapshot_corrupt": "producer-snapshot",
    "snapshot_stray": "producer-snapshot",
    "epoch_file_wrong": "epoch-file",
    "epoch_file_corrupt": "epoch-file",
    "epoch_file_missing": "epoch-file",
    "partition_metadata_corrupt": "topic-id-unreadable",
    "partition_metadata_missing": "topic-id-missing",
    "leftover_swap": "swap-file",
    "leftover_cleaned": "cleaned-file",
    "leftover_deleted": "deleted-file",
    "leftover_tmp": "tmp-file",
    "checkpoint_beyond_log": "high-watermark",
    "log_start_beyond_end": "log-start",
    "checkpoint_corrupt": "checkpoint-unreadable",
    "checkpoint_orphan": "checkpoint-orphan",
    "orphan_index": "segment-missing",
    "meta_properties_missing": "meta-properties",
    "meta_properties_corrupt": "meta-properties",
    "not_stopped": "no-clean-marker",
    "clean_shutdown_corrupt": "marker-without-epoch",
    "topic_id_conflict": "topic-id-conflict",
}


@pytest.mark.parametrize(
    ("apply", "expected"),
    [
        pytest.param(apply, output, id=name, marks=pytest.mark.evidence(*filter(None, [EVIDENCE.get(name)])))
        for name, apply, output in SIDE_DISEASES
    ],
)
def test_side_disease_gives_its_findings_and_no_others(
    apply: Callable[[Path], object], expected: Reported, sound: Path, damaged: Path
) -> None:
    apply(damaged)
    assert new(damaged, sound)[1] == expected


@pytest.mark.evidence("suffixed-directory", "bad-directory")
@pytest.mark.parametrize(
    ("apply", "kind", "name"),
    [
        (S.stray_directory, "stray-directory", f"metro-1.{ID}-stray"),
        (S.deleted_directory, "deleted-directory", f"metro-1.{ID}-delete"),
        (S.future_directory, "future-directory", f"metro-1.{ID}-future"),
        (S.bad_directory_name, "bad-directory-name", "metro_1"),
    ],
)
def test_directory_disease_gives_its_findings_and_no_others(
    apply: Callable[[Path], InflictedDamage], kind: str, name: str, sound: Path, damaged: Path
) -> None:
    apply(damaged / "metro-1")
    expected = {(kind, name)}
    if kind not in ("bad-directory-name", "deleted-directory"):
        expected.add(("open-transaction", name))
    # the checkpoints of a future directory use the plain name
    if kind != "future-directory":
        expected |= {("checkpoint-orphan", RECOVERY_POINTS), ("checkpoint-orphan", HIGH_WATERMARKS)}
    assert new(damaged, sound)[1] == expected


def test_quick_level_finds_a_too_large_index(damaged: Path) -> None:
    S.index_zero_tail(damaged / f"{INNER}.index", 1000)
    S.index_bad_size(damaged / f"{INNER}.timeindex")
    assert judge(damaged, "quick").output("error", "warning") == {
        ("index-oversized", f"{INNER}.index"),
        ("index-bad-size", f"{INNER}.timeindex"),
    }


def test_single_index_is_compared_with_its_log(damaged: Path) -> None:
    assert judge(damaged / f"{INNER}.index").findings == ()
    assert judge(damaged / f"{INNER}.timeindex").findings == ()
    assert judge(damaged / f"{INNER}.txnindex").findings == ()
    S.index_wrong_entry(damaged / f"{INNER}.index")
    assert judge(damaged / f"{INNER}.index").ids() == {"index-entry-mismatch"}
    D.bad_crc(damaged / f"{INNER}.log")
    assert judge(damaged / f"{INNER}.timeindex").findings == ()
    assert judge(damaged / f"{INNER}.log").ids() == {"bad-crc"}


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("00000000000000000005.snapshot", b"", "snapshot-corrupt"),
        ("leader-epoch-checkpoint", b"0\n1\n-1 5\n", "leader-epoch-file-corrupt"),
        ("partition.metadata", b"version: 0", "partition-metadata-corrupt"),
        ("quorum-state", b"{}", "quorum-state-corrupt"),
        ("meta.properties", b"version=1\n", "meta-properties-corrupt"),
        ("recovery-point-offset-checkpoint", b"1\n0\n", "checkpoint-corrupt"),
        ("00000000000000000005.index", b"12345678", "orphan-index"),
        ("notes.txt", b"hello", "unknown-file"),
        ("00000000000000000005-0000000001.checkpoint", b"", "metadata-snapshot-incomplete"),
        ("5.log", b"", "bad-file-name"),
    ],
)
def test_damaged_single_files_are_found(name: str, data: bytes, kind: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    assert judge(tmp_path / name).ids() == {kind}


def test_empty_partition_does_not_advise_recover(tmp_path: Path) -> None:
    """Nothing needs a repair, because a broker creates the first segment when it opens the directory."""
    empty = tmp_path / "orders-0"
    empty.mkdir()
    (found,) = judge(empty).findings
    assert found.id == "no-segments"
    assert "recover" not in found.kind.hint
