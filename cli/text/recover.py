"""What `recover` says to people: the steps of a plan, and what either policy costs."""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.run_summary import counted
from kseg.cli.text.checkpoints_of_copy import carried_words
from kseg.cli.text.room_needed import room_words
from kseg.segment.terminal import shell_quoted, visible

Values = Mapping[str, Any]

_POLICIES = ("salvage", "kafka")


def recover_words(values: Values) -> Iterator[str]:
    """A step is a line, a result a paragraph."""
    if values.get("type") == "step":
        yield f"  {visible(str(values['words']))}"
    elif values.get("type") == "result":
        yield from _result(values)
    else:
        yield visible(str(values.get("words", values)))


def is_due(values: Values) -> bool:
    """Whether something remains to be done after this row: a plan that was not carried out, or what no plan mends."""
    if values.get("type") != "result":
        return False
    return bool(values.get("doubt")) or (bool(values.get("steps")) and not values.get("applied"))


def is_planned(values: Values) -> bool:
    """Whether the row is a plan that was not carried out."""
    return values.get("type") == "result" and bool(values.get("steps")) and not values.get("applied")


def _result(values: Values) -> Iterator[str]:
    name = visible(str(values.get("partition") or values["log_dir"]))
    offsets = ""
    if "log_end_offset" in values:
        start, end = values["log_start_offset"], values["log_end_offset"]
        offsets = f"; offsets {start} to {end} (last stable {values['last_stable_offset']})"
    yield f"{name}: {_done(values)}{offsets}"
    if values.get("doubt") and "log_dir" in values:
        yield f"  a broker would still not start: {visible(str(values['doubt']))}"
    elif values.get("doubt"):
        yield f"  still not sound: {visible(str(values['doubt']))}"
    costs: Mapping[str, Values] = values.get("costs") or {}
    if any(cost.get("dies_of") or any(cost.values()) for cost in costs.values()):
        for policy in _POLICIES:
            if policy in costs:
                yield f"  policy {policy} {_cost(costs[policy])}"
        yield from _choice(costs)
    yield from carried_words(values)
    yield from room_words(values)
    for key, label in (("quarantine", "what was taken out"), ("journal", "undo with: kseg undo")):
        if values.get(key):
            yield f"  {label}{':' if key == 'quarantine' else ''} {shell_quoted(str(values[key]))}"


def _done(values: Values) -> str:
    steps = int(values.get("steps") or 0)
    if values.get("whole") is False:
        return f"checkpoints of the copies written to {visible(str(values['output']))}"
    if values.get("output"):
        return f"copied to {visible(str(values['output']))} with {counted(steps, 'change')}"
    if not steps:
        return "nothing to repair"
    return f"{'repaired in' if values.get('applied') else 'a repair is due:'} {counted(steps, 'step')}"


def _cost(cost: Values) -> str:
    if cost.get("dies_of"):
        return f"cannot: a broker dies of {cost['dies_of']}"
    batches, lost_bytes, offsets = cost.get("batches", 0), cost.get("bytes", 0), cost.get("offsets", 0)
    left = cost.get("damaged_bytes_left", 0)
    stays = f"; leaves {counted(int(left), 'damaged byte')} where they are" if left else ""
    lost = _lost(int(offsets), cost.get("records", 0))
    if not lost_bytes and not batches:
        return f"takes out nothing; {lost}{stays}" if left or offsets else "loses nothing"
    valid = f", {batches:,} valid {'batch' if batches == 1 else 'batches'} among them" if batches else ""
    return f"takes out {counted(int(lost_bytes), 'byte')}{valid}; {lost}{stays}"


def _lost(offsets: int, records: int | None) -> str:
    """What consumers do not get any more."""
    if records is None:
        return f"records in {counted(offsets, 'offset')} lost, nobody can tell how many"
    among = "" if records == offsets or not offsets else f" ({counted(offsets, 'offset')})"
    return f"{counted(records, 'record')} lost{among}" if records or offsets else "no record lost"


def _choice(costs: Mapping[str, Values]) -> Iterator[str]:
    """One sentence that helps to choose between the policies."""
    salvage, kafka = (costs.get(policy) for policy in _POLICIES)
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
        yield "  both lose the same; policy kafka leaves the damage, and consumers stop there"
    else:
        yield "  both policies lose the same"
