"""What `retain` says to people: each segment with its verdict, what other limits would free, and the result."""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.run_summary import counted
from kseg.cli.text.room_needed import room_words
from kseg.cli.text.setting_sources import settings_words
from kseg.segment.terminal import shell_quoted, visible

Values = Mapping[str, Any]

CHANGES = ("deleted", "unmarked", "purged", "log_start_moved")  # what of a result says that files change
HELD = {  # what holds bytes that cannot be freed
    "active": "active segments",
    "high-watermark": "above the high watermark",
    "cleanup.policy": "topics that are compacted only",
    "policy-unknown": "topics whose cleanup.policy nobody knows",
    "internal-topic": "internal topics",
    "set-aside": "the metadata log and directories that were set aside",
    "deleted-directory": "directories of deleted topics, which a broker removes when it starts",
    "unfinished-files": "unfinished files of the cleaner, which a broker removes when it starts",
    "quarantine": "kept in .kseg for `kseg undo`",
    "hard-link": "files with a second name elsewhere (hard links)",
    "unreadable": "partitions that cannot be read",
    "refused": "partitions that need `kseg recover` first",
}
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
        case "free_topic":
            yield from _free_topic(values)
        case "free":
            yield from _free(values)
        case "result" if "log_dir" in values:
            yield from _log_dir(values)
        case "result":
            yield from _result(values)
        case _:
            yield visible(str(values))


def is_due(values: Values) -> bool:
    """Whether something remains to be done after this row: a plan that was not carried out."""
    if values.get("type") == "free":
        return not values["applied"]
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
    yield from room_words(values)
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
        yield f"  undo with: kseg undo {shell_quoted(str(values['journal']))}"


def _free_topic(values: Values) -> Iterator[str]:
    limits = []
    if values["retention_ms"] is not None:
        limits.append(f"retention.ms {values['retention_ms']}")
    if values["retention_bytes"] is not None:
        limits.append(f"retention.bytes {values['retention_bytes']}")
    yield (
        f"  {visible(str(values['topic']))}: {counted(values['segments'], 'segment')} of "
        f"{counted(values['bytes'], 'byte')} in {counted(values['partitions'], 'partition')}; "
        f"that amounts to {' or '.join(limits) or 'no limit: its timestamps lie in the future'}"
    )


def _free(values: Values) -> Iterator[str]:
    where = ", ".join(visible(str(path)) for path in values["log_dirs"])
    verb = "were marked" if values["applied"] else "to be marked"
    gone = values["marked_bytes"] + values["chosen_bytes"]
    yield (
        f"{where}: {counted(values['wanted'], 'byte')} to be freed: {values['marked_bytes']:,} in files that were marked before, "
        f"{values['chosen_bytes']:,} in {counted(values['segments'], 'segment')} {verb}"
    )
    if not values["reached"]:
        held = ", ".join(
            f"{words} {values['held'][name]:,}" for name, words in HELD.items() if name in values["held"]
        )
        can = values["freeable_bytes"]
        most = f"all that may go are {counted(can, 'byte')} (--free {can})" if can else "nothing may go"
        yield f"  that cannot be reached: {most}"
        yield f"  what stays, in bytes: {held or 'nothing else'}"
    after = values["available"] + gone
    if values["purge"]:
        state = "has" if values["applied"] else "would have"
        yield f"  the file system {state} about {counted(after, 'byte')} free then, {values['available']:,} before"
    else:
        yield (
            "  marked files free nothing until they are purged (--purge does both, and nothing brings back what is purged); "
            f"the file system has {counted(values['available'], 'byte')} free"
        )
