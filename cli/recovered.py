"""What `recover` says to people: the steps of a plan, and what either policy costs."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.stream import visible
from kseg.cli.tally import counted

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
    """Whether something remains to be done after this row: a plan that was not carried out."""
    return values.get("type") == "result" and bool(values.get("steps")) and not values.get("applied")


def _result(values: Values) -> Iterator[str]:
    name = visible(str(values.get("partition") or values["log_dir"]))
    offsets = ""
    if "log_end_offset" in values:
        start, end = values["log_start_offset"], values["log_end_offset"]
        offsets = f"; offsets {start} to {end} (last stable {values['last_stable_offset']})"
    yield f"{name}: {_done(values)}{offsets}"
    if values.get("doubt"):
        yield f"  still not sound: {visible(str(values['doubt']))}"
    costs: Mapping[str, Values] = values.get("costs") or {}
    if any(cost.get("dies_of") or any(cost.values()) for cost in costs.values()):
        for policy in _POLICIES:
            if policy in costs:
                yield f"  policy {policy} {_cost(costs[policy])}"
    for key, label in (("quarantine", "what was taken out"), ("journal", "undo with: kseg undo")):
        if values.get(key):
            yield f"  {label}{':' if key == 'quarantine' else ''} {visible(shlex.quote(str(values[key])))}"


def _done(values: Values) -> str:
    steps = int(values.get("steps") or 0)
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
    if not lost_bytes and not batches:
        return f"takes out nothing{stays}" if left else "loses nothing"
    valid = f", {batches:,} valid {'batch' if batches == 1 else 'batches'} among them" if batches else ""
    return (
        f"takes out {counted(int(lost_bytes), 'byte')}{valid}; {counted(int(offsets), 'offset')} lost{stays}"
    )
