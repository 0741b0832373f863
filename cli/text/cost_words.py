"""What a recovery costs: the sentences about what either policy loses of a partition, and about what was missing before."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from kseg.cli.text.plan_words import settings_words
from kseg.segment.counted import counted, listed, offsets_words
from kseg.segment.scanning.lost_offsets import plus

Values = Mapping[str, Any]

POLICIES = ("salvage", "kafka")
_SPANS = 3  # of missing offsets
_TAIL = "lost-tail"
# the cost of a log that cannot be loaded, or stays damaged: more than the records of any log
NO_LOG = 1 << 40


class LossTotal:
    """What one policy loses of several partitions."""

    def __init__(self) -> None:
        self._records = self._unloadable = 0
        # partitions that lose an unknown number of records, and the most that these may lose, None if even that is unknown
        self._unknown, self._at_most = 0, cast("int | None", 0)

    def add(self, cost: Values) -> None:
        if cost.get("dies_of"):
            self._unloadable += 1
        elif cost["records"] is None:
            self._unknown += 1
            self._at_most = plus(self._at_most, cost.get("records_at_most"))
        else:
            self._records += cost["records"]

    def records_words(self) -> str:
        """`12 records lost, at most 30 more in 2 partitions`."""
        if not self._records and not self._unknown:
            return "no record lost"
        words = f"{counted(self._records, 'record')} lost" if self._records else ""
        if self._unknown and self._at_most is not None:
            more = (
                f"at most {self._at_most:,} more"
                if words
                else f"at most {counted(self._at_most, 'record')} lost"
            )
            words += f"{', ' if words else ''}{more} in {counted(self._unknown, 'partition')}"
        elif self._unknown:
            words += ", an unknown number in " if words else "an unknown number of records lost in "
            words += counted(self._unknown, "partition")
        return words

    def words(self) -> str:
        """The records, and the partitions that cannot be loaded."""
        unloadable = (
            f", {counted(self._unloadable, 'partition')} cannot be loaded" if self._unloadable else ""
        )
        return f"{self.records_words()}{unloadable}"


def cost_lines(values: Values) -> Iterator[str]:
    """The lines of a result about its costs, and about the records that were missing before."""
    costs: Mapping[str, Values] = values.get("costs") or {}
    if before := lost_before(values):
        yield f"  {before}"
    elif any(map(is_costly, costs.values())):
        for policy in POLICIES:
            if policy in costs:
                yield f"  policy {policy} {_cost(costs[policy])}"
        yield from _expired(values)
        yield from _choice(costs)
    if missing := missing_log_words(values):
        yield f"  {missing}"


def stake_of(cost: Values) -> int:
    """The cost of a policy for a partition, for comparison; in records if known."""
    if cost.get("dies_of"):
        return NO_LOG
    records = cost.get("records")
    return int(cost.get("offsets", 0) if records is None else records)


def stakes_of(values: Values, policy: str) -> tuple[int, int]:
    """What is at stake in a partition, for comparison: what this policy loses, with doubts about the result above all, and what the other
    one loses. values: a row with `costs` and `doubt`."""
    costs: Mapping[str, Values] = values.get("costs") or {}
    by_policy = {name: stake_of(cost) for name, cost in costs.items()}
    own = by_policy.pop(policy, 0) + (NO_LOG if values.get("doubt") else 0)
    return own, sum(by_policy.values())


def is_costly(cost: Values) -> bool:
    """Whether a policy loses anything of a partition, or leaves damage in it."""
    return any(cost.values())


def short_cost_words(cost: Values) -> str:
    """The cost of one policy for a partition, without a subject: `loses 3 records`."""
    if cost.get("dies_of"):
        return f"cannot load it ({cost['dies_of']})"
    left = cost.get("damaged_bytes_left", 0)
    stays = f", leaves {counted(int(left), 'damaged byte')}" if left else ""
    return f"loses {_records_words(cost)}{stays}"


def _cost(cost: Values) -> str:
    if cost.get("dies_of"):
        return f"cannot load it: a broker fails with {cost['dies_of']}"
    batches, lost_bytes, offsets = cost.get("batches", 0), cost.get("bytes", 0), cost.get("offsets", 0)
    left = cost.get("damaged_bytes_left", 0)
    stays = f"; leaves {counted(int(left), 'damaged byte')} in place" if left else ""
    lost = _lost(int(offsets), cost)
    if not lost_bytes and not batches:
        return f"removes nothing; {lost}{stays}" if left or offsets else "loses nothing"
    valid = f", including {counted(batches, 'valid batch')}" if batches else ""
    return f"removes {counted(int(lost_bytes), 'byte')}{valid}; {lost}{stays}"


def _expired(values: Values) -> Iterator[str]:
    """How much of the loss is due to retention, and by which limit."""
    segments = int(values["costs"].get("kafka", {}).get("expired_segments") or 0)
    if segments:
        its = "its time index is" if segments == 1 else "their time indexes are"
        yield f"  a broker's retention would delete {counted(segments, 'segment')} because {its} wrong"
        yield from settings_words(values, ("cleanup.policy", "retention.ms"))


def _lost(offsets: int, cost: Values) -> str:
    """The records that consumers lose."""
    records = cost.get("records", 0)
    if records is None:
        at_most = cost.get("records_at_most")
        if at_most is None and not offsets:
            return "an unknown number of records lost at the log end: their header, which has it, is damaged or incomplete"
        if at_most is None:
            return f"records in {counted(offsets, 'offset')} or more lost; their number is unknown, because it is in the damaged headers"
        return (
            f"at most {counted(at_most, 'record')} lost: the exact number is in the damaged headers, and "
            "not every offset need have a record"
        )
    among = "" if records == offsets or not offsets else f" ({counted(offsets, 'offset')})"
    return f"{counted(records, 'record')} lost{among}" if records or offsets else "no record lost"


def lost_before(values: Values) -> str:
    """The loss of a log that is valid but shorter than checkpoints or side files say, as after a repair that was killed before it
    updated them; empty if anything else is lost."""
    removed = values.get("removed") or ()
    costs = [*(values.get("costs") or {}).values()]
    if values.get("steps") or not removed or any(each["finding"] != _TAIL for each in removed):
        return ""
    if not costs or any(
        cost.get("dies_of") or cost["records_at_most"] != costs[0]["records_at_most"] for cost in costs
    ):
        return ""
    last = [each["last_offset"] for each in removed if each["last_offset"] is not None]
    offsets = f" ({offsets_words(values['log_end_offset'], max(last))})" if last else ""
    return f"its end was lost earlier{offsets}: {_records_words(costs[0])}"


def missing_log_words(values: Values) -> str:
    """Which records were missing before the repair, because their log was missing or empty; empty if there are none."""
    missing = values.get("missing") or ()
    if not missing:
        return ""
    spans = [
        f"from {each['first_offset']} on"
        if each["last_offset"] is None
        else offsets_words(each["first_offset"], each["last_offset"])
        for each in missing
    ]
    return f"the records of {counted(len(missing), 'log')} were missing before ({listed(spans, _SPANS)}), and no repair restores them"


def _choice(costs: Mapping[str, Values]) -> Iterator[str]:
    """One sentence that helps to choose between the policies."""
    salvage, kafka = (costs.get(policy) for policy in POLICIES)
    if salvage is None or kafka is None:
        return
    if kafka.get("dies_of") or salvage.get("dies_of"):
        if not salvage.get("dies_of"):
            yield "  policy salvage is the only one that leaves a log"
        return
    unit = "records" if None not in (salvage["records"], kafka["records"]) else "offsets"
    more = int(kafka[unit] or 0) - int(salvage[unit] or 0)
    if more:
        better, worse = ("salvage", "kafka") if more > 0 else ("kafka", "salvage")
        saved = counted(abs(more), unit.removesuffix("s"))
        yield f"  policy {better} keeps {saved} that policy {worse} loses"
    elif kafka["damaged_bytes_left"]:
        yield "  both policies lose the same; policy kafka leaves the damage, and consumers get stuck there"
    else:
        yield "  both policies lose the same"


def _records_words(cost: Values) -> str:
    records, at_most = cost.get("records", 0), cost.get("records_at_most")
    if records is not None:
        return counted(records, "record") if records else "nothing"
    if at_most is not None:
        return f"at most {counted(at_most, 'record')}"
    if not cost.get("offsets"):
        return "an unknown number of records at the log end"
    return f"an unknown number of records in {counted(int(cost.get('offsets', 0)), 'offset')} or more"
