"""Extrapolate from samples to a whole topic: its estimated size, and the confidence.

The estimate is the ratio of the sums over all samples, times the bytes of the topic, so a sample is weighted by its bytes and an outlier
among small ones has little effect. The standard error comes from the residuals of the samples (the ratio estimator of survey sampling:
Cochran, Sampling Techniques, chapter 6); the interval is Student's t, so few samples make it wide. A topic that was read completely has no
error.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist

from kseg.segment.values import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes, with their confidence interval at `CONFIDENCE`."""

    size_bytes: int
    least_bytes: int
    most_bytes: int

    @property
    def is_exact(self) -> bool:
        return self.least_bytes == self.most_bytes


def estimated(places: Sequence[tuple[int, int]], total_bytes: int, is_all: bool) -> Estimate | None:
    """places: (bytes now, bytes then) of each sample. total_bytes: of the whole topic now. is_all: the samples are the whole
    topic. None if there are no samples."""
    now, then = sum(old for old, _ in places), sum(new for _, new in places)
    if not now:
        return None
    ratio = then / now
    size = then if is_all else round(ratio * total_bytes)
    if is_all:
        return Estimate(size, size, size)
    count = len(places)
    if count < 2:
        return Estimate(size, 0, max(size, total_bytes))
    strays = sum((new - ratio * old) ** 2 for old, new in places)
    unseen = max(0.0, 1 - now / total_bytes)
    error = total_bytes / now * sqrt(unseen * strays * count / (count - 1))
    margin = round(student(count - 1) * error)
    return Estimate(size, max(0, size - margin), size + margin)


def student(freedom: int) -> float:
    """The two-sided quantile of Student's t at `CONFIDENCE`, by the expansion of Abramowitz and Stegun 26.7.5 (right to 1 % from 3 degrees
    of freedom on; with 1 and 2 the values themselves)."""
    if freedom < 3:
        return (12.706, 4.303)[freedom - 1]
    z: float = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    terms: tuple[float, ...] = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(freedom**power) for power, term in enumerate(terms, 1))
