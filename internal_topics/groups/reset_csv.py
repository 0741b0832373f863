"""The file that `kafka-consumer-groups.sh --reset-offsets --from-file` reads: one line per offset, no header.

    topic,partition,offset           with one group
    group,topic,partition,offset     with several

The tool's reader takes missing columns for zeros and fails at an empty line, so every line has all columns and ends in `\\n`. A name is
quoted as the tool's own writer does it: when it has more than 24 characters or one below `-` (a blank, a quote, a comma, a line break).
(Kafka: CsvUtils, OffsetsUtils.parseResetPlan; jackson-csv.)
"""

from collections.abc import Iterable

_LONGEST_BARE = 24


def reset_csv(offsets: Iterable[tuple[str, str, int, int]], *, is_one_group: bool) -> bytes:
    """The file for (group, topic, partition, offset), in the given order. is_one_group: the group is passed to the tool by name."""
    lines = []
    for group, topic, partition, offset in offsets:
        names = [topic] if is_one_group else [group, topic]
        lines.append(",".join([*map(_field, names), str(partition), str(offset)]) + "\n")
    return "".join(lines).encode("utf-8", "replace")


def _field(name: str) -> str:
    if name and len(name) <= _LONGEST_BARE and min(name) >= "-":
        return name
    return '"' + name.replace('"', '""') + '"'
