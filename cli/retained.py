"""What `retain` says to people: each segment with its verdict, what other limits would free, and the result."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.settings_words import settings_words
from kseg.cli.stream import visible
from kseg.cli.tally import counted

Values = Mapping[str, Any]

CHANGES = ("deleted", "unmarked", "purged", "log_start_moved")  # what of a result says that files change
_SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes")


def retain_words(values: Values) -> Iterator[str]:
    """A segment, a mark and another limit are a line each, a result a paragraph."""
    match values.get("type"):
        case "segment":
            yield (
                f"  {values['base_offset']:020d}  {values['verdict']:<6}  {values['bytes']:>13,}  "
                f"{values['reason']} ({values['rule']})"
            )
        case "mark":
            yield f"  {visible(str(values['file']))}  {values['verdict']}: {values['reason']}"
        case "what_if":
            yield (
                f"  with {values['rule']} {values['value']} ({values['words']}): "
                f"{counted(values['segments'], 'segment')}, "
                f"{counted(values['bytes_freed'], 'byte')} freed, the log starts at {values['log_start_offset']}"
            )
        case "result" if "log_dir" in values:
            yield from _log_dir(values)
        case "result":
            yield from _result(values)
        case _:
            yield visible(str(values))


def is_due(values: Values) -> bool:
    """Whether something remains to be done after this row: a plan that was not carried out."""
    if values.get("type") != "result" or values["applied"]:
        return False
    return "log_dir" in values or any(values[name] for name in CHANGES)


def _result(values: Values) -> Iterator[str]:
    name = visible(str(values["partition"]))
    applied = values["applied"]
    words = []
    if values["deleted"]:
        verb = "marked for deletion" if applied else "to be deleted"
        words.append(
            f"{counted(len(values['deleted']), 'segment')} of {counted(values['bytes_freed'], 'byte')} {verb}"
        )
    if values["unmarked"]:
        verb = "taken back" if applied else "can be taken back"
        words.append(f"{counted(len(values['unmarked']), 'segment')} {verb}")
    if values["purged"]:
        verb = "purged" if applied else "to be purged"
        words.append(
            f"{counted(len(values['purged']), 'marked file')} of {counted(values['bytes_purged'], 'byte')} {verb}"
        )
    offsets = ""
    if values["log_end_offset"] is not None:
        offsets = f"; offsets {values['log_start_offset']} to {values['log_end_offset']}"
    yield f"{name}: {', '.join(words) or 'nothing goes'}{offsets}"
    yield from settings_words(values, _SETTINGS)
    if values["rolled"]:
        yield "  nothing else would be left, so an empty segment is begun at the log end"
    yield from _way_back(values)


def _log_dir(values: Values) -> Iterator[str]:
    starts = ", ".join(
        f"{visible(partition)} {'no entry' if at is None else at}"
        for partition, at in values["log_start_offsets"].items()
    )
    yield f"{visible(str(values['log_dir']))}: log start offsets{': ' + starts if starts else ' as they were'}"
    yield from _way_back(values)


def _way_back(values: Values) -> Iterator[str]:
    if values["journal"]:
        yield f"  undo with: kseg undo {visible(shlex.quote(str(values['journal'])))}"
