"""What the damage of each partition costs, for the page of `doctor`: what `recover` loses of it, and what a broker loses.

With many damaged partitions the page names those that lose the most, and the total of all.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.report import VERBOSE_SHOWS_ALL, Line
from kseg.cli.text.common import partition_words, place_of
from kseg.cli.text.cost_words import NO_LOG, LossTotal, is_costly, short_cost_words, stakes_of
from kseg.cli.text.recover import doubt_words
from kseg.segment.counted import counted, shown_of
from kseg.segment.partition.names import GROUP_TOPICS
from kseg.segment.terminal import visible

Values = Mapping[str, Any]

_SHOWN = 8
_DAMAGED_BATCHES = {
    "zero-tail",
    "zero-filled",
    "bad-crc",
    "bad-length",
    "bad-magic",
    "foreign-bytes",
    "unreadable-batch",
}
# of a transaction index that has no wrong entries
_LACKING_ENTRIES = {"txn-index-missing-entry", "txn-index-bad-size"}


class DamageCosts:
    """The section about the `damage` rows of an examination."""

    def __init__(self) -> None:
        self._count = self._unknown = self._strays = 0
        self._by_recover, self._by_broker = LossTotal(), LossTotal()
        self._repairs_bits = False
        # those that lose the most
        self._first: list[Values] = []

    def add(self, values: Values) -> None:
        self._count += 1
        # the sort is stable: of those that lose the same, the first ones stay
        self._first = sorted([*self._first, values], key=_stake, reverse=True)[: _SHOWN + 1]
        self._repairs_bits |= bool(values["repair_bits"])
        costs = values["costs"]
        if costs is None:
            self._unknown += 1
            return
        if "salvage" in costs:
            self._by_recover.add(costs["salvage"])
        if _is_set_aside(values):
            self._strays += 1
        elif "kafka" in costs:
            self._by_broker.add(costs["kafka"])

    def lines(self) -> Iterator[Line]:
        """A line for each partition; if there are too many, for those that lose the most, followed by the total."""
        shown = shown_of(self._count, _SHOWN)
        called = partition_words(map(place_of, self._first[:shown]))
        for values in self._first[:shown]:
            yield Line(_cost(called[place_of(values)], values))
        if self._count > shown:
            yield Line(f"… and {self._count - shown:,} more ({VERBOSE_SHOWS_ALL})")
            yield Line(self._total())

    def _total(self) -> str:
        words = [
            f"with `{_recover(self._repairs_bits)}`, {self._by_recover.words()}",
            f"without a repair, {self._by_broker.words()}",
        ]
        if self._strays:
            words[-1] += f", {counted(self._strays, 'partition')} set aside as stray"
        if self._unknown:
            words.append(f"the cost of {counted(self._unknown, 'partition')} is unknown")
        return f"all {self._count:,}: {'; '.join(words)}"


def _stake(values: Values) -> tuple[int, int]:
    """What is lost of a partition by a repair, and by a broker, for comparison."""
    return (NO_LOG, 0) if values["costs"] is None else stakes_of(values, "salvage")


def _cost(name: str, values: Values) -> str:
    costs = values["costs"]
    if costs is None:
        return f"{name}: unknown: {visible(str(values['reason'] or 'the repair could not be planned'))}"
    is_stray = _is_set_aside(values)
    if values["doubt"] and not is_stray and not any(map(is_costly, costs.values())):
        return f"{name}: `recover` leaves it damaged: {doubt_words(values['doubt'])}"
    salvage = short_cost_words(costs["salvage"]) if "salvage" in costs else "loses nothing"
    broker = f"; a broker {short_cost_words(costs['kafka'])}" if "kafka" in costs else ""
    if is_stray:
        broker = "; a broker sets it aside as stray"
    ends = values["transaction_ends_lost"]
    also = f"; the end of {counted(ends, 'transaction')} may be lost" if ends else ""
    if logs := values["findings"].get("segment-missing"):
        also += f"; the records of {counted(logs, 'missing log')} are lost unless {'it is' if logs == 1 else 'they are'} found"
    also += _of_consumers(values["findings"])
    return f"{name}: `{_recover(values['repair_bits'])}` {salvage}{broker}{also}{_of_groups(values)}"


def _is_set_aside(values: Values) -> bool:
    """Whether a broker renames the directory as stray, which it does after the load and not with a mount point."""
    return "becomes-stray" in values["findings"] and not values["costs"].get("kafka", {}).get("dies_of")


def _recover(repairs_bits: bool) -> str:
    return "recover --repair-bits" if repairs_bits else "recover"


def _of_consumers(found: Mapping[str, int]) -> str:
    """What a wrong transaction index means for consumers: a fetch takes the aborted transactions from it (Kafka:
    UnifiedLog.collectAbortedTransactions; observed with 4.3.1). found: the finding ids of a partition."""
    wrong = {each for each in found if each.startswith("txn-index-")}
    if not wrong:
        return ""
    hides = "" if wrong <= _LACKING_ENTRIES else ", and may miss committed ones"
    return f"; as long as its transaction index is wrong, read_committed consumers get records of aborted transactions{hides}"


def _of_groups(values: Values) -> str:
    """What damage that a broker leaves means for the groups in a partition. values: a `damage` row."""
    topic = str(values["partition"]).rpartition("-")[0]
    is_left = values["costs"].get("kafka", {}).get("damaged_bytes_left", 0) > 0
    found = set(values["findings"])
    if topic not in GROUP_TOPICS or not is_left:
        return ""
    if found & _DAMAGED_BATCHES:
        return ", and a coordinator that reads them loads no group of the partition, or wrong values: it does not verify checksums"
    return (
        ", and appends after them; then a coordinator loads no group of the partition"
        if "torn-tail" in found
        else ""
    )
