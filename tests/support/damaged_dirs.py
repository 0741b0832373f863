"""Damage in a healthy data directory: where it is, and which findings verify reports in addition."""

from __future__ import annotations

from pathlib import Path

from tests.support.verify_helpers import Verdict, judge

INNER = "metro-0/00000000000000000198"  # a segment in the middle of the log
LAST = "metro-0/00000000000000000297"
OLD = "gates.old-0/00000000000000000000"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
EPOCHS = "metro-0/leader-epoch-checkpoint"
ID = "0123456789abcdef0123456789abcdef"

Reported = set[tuple[str, str]]


def in_log(kind: str, *others: tuple[str, str], log: str = INNER) -> Reported:
    return {(kind, f"{log}.log"), *others}


# index entries that no longer point at a batch because bytes were added or removed
SHIFTED = ("index-entry-mismatch", f"{INNER}.index")
LIES = ("false-clean-shutdown", ".kafka_cleanshutdown")


def new(damaged: Path, sound: Path, level: str = "default") -> tuple[Verdict, Reported]:
    verdict = judge(damaged, level)
    return verdict, verdict.output() - judge(sound, level).output()
