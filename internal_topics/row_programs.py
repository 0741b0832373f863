"""Programs for rows (`kernel.message_rows`): the messages of a topic as `topic_rows` shows them, with the names beside numbers and topic
ids."""

from collections.abc import Mapping, Sequence

from kseg.internal_topics.decoding import default_value
from kseg.internal_topics.message_programs import MessageProgram, ProgramWriter
from kseg.internal_topics.schemas import Field, Message
from kseg.internal_topics.value_names import names_of, topic_label, with_names
from kseg.segment.java import uuids
from kseg.segment.json_line import compact_json
from kseg.segment.kernel import message_fields as M


def row_program_of(topic: str, topics: Mapping[str, str], left_out: frozenset[int]) -> MessageProgram:
    """The program of an internal topic. topics: names by topic id. left_out: types whose records the kernel must not handle."""
    return _RowWriter(topics, left_out).program(topic)


class _RowWriter(ProgramWriter):
    def __init__(self, topics: Mapping[str, str], left_out: frozenset[int]) -> None:
        super().__init__()
        self._topics = topics
        self._left_out = left_out

    def write_types(self, keys: Mapping[int, Message], values: Mapping[int, Message], count: int) -> None:
        self.ops = [M.COORDINATOR if keys else M.FRAMED, count, 4, 0] + [0] * (M.ROWS_TYPE_WIDTH * count)
        self._write_topics()
        for type_id, value in values.items():
            if type_id in self._left_out:
                continue
            key = keys.get(type_id)
            before_version = f'{{"type":{type_id},"name":"{value.name}","version":'
            before_key = "" if key is None else f'{{"type":{type_id},"name":"{key.name}","data":'
            texts = (*self.text(before_version.encode()), *self.text(before_key.encode()))
            entry = 4 + M.ROWS_TYPE_WIDTH * type_id
            self.ops[entry : entry + M.ROWS_TYPE_WIDTH] = [*self.structs(key, value), *texts]

    def _write_topics(self) -> None:
        """The ids in order, then the name of each as JSON."""
        named = sorted((uuids.uuid_bytes(topic_id), name) for topic_id, name in self._topics.items())
        self.ops[3] = len(self.ops)
        self.ops += [len(named), len(self.names)]
        self.names += b"".join(topic_id for topic_id, _ in named)
        for _, name in named:
            self.ops += self.text(_json(name))

    def names_of(self, message: Message, field: Field, siblings: Sequence[str]) -> int:
        label = topic_label(field.name, siblings)
        if label is not None:
            return self._table(label, {})
        names = names_of(message.name, field.name)
        return 0 if names is None else self._table(f"{field.name}Name", names)

    def _table(self, label: str, names: Mapping[int, str]) -> int:
        table = [*self.text(f',"{label}":'.encode()), len(names)]
        for number, name in names.items():
            table += [number, *self.text(_json(name))]
        self.ops += table
        return len(self.ops) - len(table)

    def default_of(self, message: Message, field: Field, version: int, siblings: Sequence[str]) -> bytes:
        shown = with_names(message.name, {field.name: default_value(field, version)}, self._topics)
        if topic_label(field.name, siblings) is None:
            shown.pop("topicName", None)
        return b"," + _json(shown)[1:-1]


def _json(value: object) -> bytes:
    return compact_json(value).encode()
