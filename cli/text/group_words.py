"""The words of `groups` for single rows: members, offsets, deletions and rewinds."""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.segment.counted import counted, listed
from kseg.segment.moments import moment
from kseg.segment.terminal import visible

Values = Mapping[str, Any]

_PARTITIONS_SHOWN = 5  # of an assignment


def groups_words(values: Values) -> Iterator[str]:
    """The line for one row, with --verbose."""
    name = visible(str(values.get("group")))
    place = visible(f"{values.get('topic') or values.get('topic_id')}-{values.get('partition')}")
    match values.get("type"):
        case "group":
            epoch = "" if values["epoch"] is None else f", epoch {values['epoch']}"
            yield f"{name}: {values['group_type']}, {values['state']}{epoch}, {counted(values['members'], 'member')}"
        case "member":
            yield member_words(values)
        case "offset":
            progress = f"offset {values['offset']:,}, lag {number_or_dash(values['lag'])}"
            at = second_or_dash(values["commit_timestamp"])
            odd = "" if values["status"] in (None, "ok") else f", {values['status']}"
            yield f"  {name} {place}: {progress}, committed {at}{odd}"
        case "share_offset":
            odd = "" if values["status"] is None else f", {values['status']}"
            progress = f"start {number_or_dash(values['start_offset'])}, lag {number_or_dash(values['lag'])}, in flight {values['in_flight']:,}"
            yield f"  {name} {place}: {progress}, archived {values['archived']:,}, written {second_or_dash(values['timestamp'])}{odd}"
        case "pending_offset":
            yield f"  {name} {place}: offset {values['offset']:,} in an open transaction of producer {values['producer_id']}"
        case "tombstone":
            what = "group" if values["topic"] is None else place
            yield f"  {name}: {what} deleted ({moment(values['timestamp'])})"
        case "share_topic":
            yield f"  {name}: {visible(str(values['topic']))} {values['status']} ({counted(len(values['partitions']), 'partition')})"
        case "unknown_offset":
            yield f"  {name} {place}: unknown, because compaction left nothing before {moment(values['first_timestamp'])}"
        case "rewind":
            yield rewind_words(values)
        case "missing_group":
            yield f"group {name} is {values['status']}"


def member_words(values: Values) -> str:
    places = [f"{each['topic'] or each.get('topic_id')}-{each['partition']}" for each in values["assignment"]]
    parts = listed(places, _PARTITIONS_SHOWN, "partition")
    static = f", static as {values['group_instance_id']}" if values["group_instance_id"] is not None else ""
    # without a record of its own, nothing else is known of a member
    is_known = bool(values["client_id"] or values["client_host"])
    client = f"{values['client_id']} at {values['client_host']}" if is_known else "unknown client"
    who = f"{values['member_id']} ({client}{static})"
    return visible(f"  member {who}: {parts or 'nothing assigned'}")


def rewind_words(values: Values) -> str:
    place = f"{values['topic']}-{values['partition']}"
    deleted = values["deleted_timestamp"]
    why = "" if deleted is None else f", after the offset was deleted {moment(deleted)}"
    return visible(
        f"{moment(values['timestamp'])}  {values['group']} {place} went back from {values['from_offset']:,} to {values['to_offset']:,} "
        f"(committed before {moment(values['from_timestamp'])}{why})"
    )


def number_or_dash(value: Any) -> str:
    return "-" if value is None else f"{value:,}"


def second_or_dash(time_ms: int | None) -> str:
    return "-" if time_ms is None or time_ms < 0 else moment(time_ms)[:19].replace("T", " ")
