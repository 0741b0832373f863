"""Failures as sentences on stderr. A disk that is gone fails a thousand targets in the same words, so what they have in common is said
once.

1. The same sentence is printed once, as when several targets need the same unavailable object.
2. Before a report, only a few of the sentences that differ in nothing but paths and numbers are printed, and not very many in all. The
   others are counted.
3. Trailing clauses that the previous failure had too, such as advice, become "…".
"""

import os
import re
from collections import Counter

from kseg.cli.report import FAILURES_ALIKE_SHOWN, FAILURES_SHOWN, VERBOSE_SHOWS_ALL
from kseg.cli.streams import complain
from kseg.jobs.events import Failure
from kseg.segment.counted import counted

_SENTENCES_KEPT = 1000
_NUMBERS = re.compile(r"\b[0-9a-f]{8}\b|\d[\d,.]*")


class FailureLines:
    """folds: whether many failures are counted instead of printed."""

    def __init__(self, *, folds: bool) -> None:
        self._folds = folds
        self._seen: set[str] = set()
        self._seen_alike: Counter[str] = Counter()
        self._number_printed = self._number_folded = 0
        self._folded_sentence = ""
        self._last_clauses: list[str] = []

    def print(self, failure: Failure) -> None:
        sentence = failure.sentence
        if sentence in self._seen:
            return
        if len(self._seen) < _SENTENCES_KEPT:
            self._seen.add(sentence)
        alike = _NUMBERS.sub("", re.sub(rf"{re.escape(failure.path)}[^\s:]*", "", sentence))
        self._seen_alike[alike] += 1
        if self._folds and (
            self._number_printed >= FAILURES_SHOWN or self._seen_alike[alike] > FAILURES_ALIKE_SHOWN
        ):
            self._number_folded += 1
            self._folded_sentence = sentence
            return
        self._number_printed += 1
        complain(f"kseg: {self._without_repetition(sentence)}")
        if failure.trace and os.environ.get("KSEG_TRACEBACK") == "1":
            for line in failure.trace.rstrip().split("\n"):
                complain(line)

    def print_number_folded(self) -> None:
        """How many failures were not printed; a single one is printed after all."""
        if self._number_folded == 1:
            complain(f"kseg: {self._folded_sentence}")
        elif self._number_folded:
            more = counted(self._number_folded, "more target")
            complain(f"kseg: … and {more} failed ({VERBOSE_SHOWS_ALL})")

    def _without_repetition(self, sentence: str) -> str:
        clauses, before = sentence.split("; "), self._last_clauses
        self._last_clauses = clauses
        same = 0
        while same + 1 < min(len(clauses), len(before)) and clauses[-1 - same] == before[-1 - same]:
            same += 1
        return "; ".join([*clauses[: len(clauses) - same], "…"]) if same else sentence
