# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""The fast path for `__consumer_offsets`: commits without a producer that replace a known commit of the same key, or are the first
record of their key.

Nearly all records of that topic are of this kind, and only the last one of each key matters. All others are left to the caller, one record
at a time: known keys that are not in `entry_of`, keys and values of an unusual form (`internal_topics/groups/group_records` has
the layouts), commits in transactions, tombstones, and records about groups.

    table   offset │ timestamp │ committed offset │ number of rewinds       int64 each, the four of an entry adjacent
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable

(T_OFFSET, T_TIMESTAMP, T_COMMITTED, T_REWINDS) = range(4)
ENTRY_WIDTH = 4


def is_commit(value: Readable, p: int, size: int, key_type: int) -> int:
    # whether `size` bytes at p are a valid commit of its version; 0 if only the decoder can decide
    if size < 20 or value[p] != 0 or (key_type == 0 and value[p + 1] != 0):
        return 0
    version = value[p + 1]
    if version == 3:
        return value[p + 14] < 128 and size >= 24 + ((value[p + 14] << 8) | value[p + 15])
    if version == 4:
        # a length of one byte, for at most 126 bytes of metadata; then no tag, or the topic id
        tags = 22 + value[p + 14]
        if value[p + 14] == 0 or value[p + 14] > 127 or size <= tags:
            return 0
        if value[p + tags] == 0:
            return 1
        return (
            size >= tags + 19
            and value[p + tags] == 1
            and value[p + tags + 1] == 0
            and value[p + tags + 2] == 16
        )
    if version > 3 or value[p + 10] > 127:
        return 0
    expiry = 8 if version == 1 else 0
    return size >= 20 + expiry + ((value[p + 10] << 8) | value[p + 11])


def is_plain_key(key: Readable, p: int, size: int) -> int:
    """Whether `size` bytes at p are the key of a commit (type 1) as a broker writes it for ASCII names; such a key has only one
    encoding."""
    end = p + size
    if size < 10 or key[p] != 0 or key[p + 1] != 1 or key[p + 2] > 127:
        return 0
    topic_at = p + 4 + ((key[p + 2] << 8) | key[p + 3])
    if topic_at > end - 6 or key[topic_at] > 127:
        return 0
    if topic_at + 2 + ((key[topic_at] << 8) | key[topic_at + 1]) + 4 != end:
        return 0
    p = p + 4
    while p < end - 4:
        if p == topic_at:
            p = p + 2
        elif key[p] > 127:
            return 0
        else:
            p = p + 1
    return 1


def plain_key(key: Readable) -> int:
    """`is_plain_key` of a whole key."""
    return is_plain_key(buffer_access.bytes_in(key), 0, len(key))


def take_commits(
    body: Readable,
    records: Readable,
    capacity: int,
    at: int,
    count: int,
    batches: Readable,
    batch_capacity: int,
    entry_of: dict[bytes, int],
    keys: list[bytes],
    values: list[bytes],
    known: dict[bytes, object] | None,
    table: Writable,
    earliest: int,
    latest: int,
    keeps_rewinds: int,
) -> int:
    """Process the records `at` … count − 1 until one is not ordinary; returns that record, `count` if all are.

    entry_of: the entry of each key that ordinary commits may replace. keys, values: of each entry, the key and the newest value. known: all
    keys seen so far; a key that is not among them gets an entry with its first commit; None: new keys get none. A record is
    ordinary if its timestamp is between earliest and latest; with keeps_rewinds, one with a lower offset than before is not.
    """
    if (
        count > capacity
        or C.RECORD_WIDTH * capacity > len(records)
        or C.BATCH_WIDTH * batch_capacity > len(batches)
        or at < 0
    ):
        raise ValueError("a table is smaller than its capacity says")
    source = buffer_access.bytes_in(body)
    size = len(body)
    entries = len(table) // 4
    last_batch = -1
    is_plain = 0
    while at < count:
        batch = records[C.R_BATCH * capacity + at]
        if batch != last_batch:
            if batch < 0 or batch >= batch_capacity:
                raise ValueError("a batch lies outside the table")
            last_batch = batch
            is_plain = (
                batches[C.MAGIC * batch_capacity + batch] < 2
                or batches[C.PRODUCER_ID * batch_capacity + batch] == -1
            )
        start = records[C.R_KEY_START * capacity + at]
        length = records[C.R_KEY_LENGTH * capacity + at]
        place = records[C.R_VALUE_START * capacity + at]
        room = records[C.R_VALUE_LENGTH * capacity + at]
        timestamp = records[C.R_TIMESTAMP * capacity + at]
        if not is_plain or length < 8 or room < 20 or timestamp < earliest or timestamp > latest:
            break
        if start < 0 or start > size - length or place < 0 or place > size - room:
            raise ValueError("a record lies outside its buffer")
        key = bytes(source[start : start + length])
        entry = entry_of.get(key, -1)
        if entry >= entries:
            raise ValueError("there are fewer entries than that")
        if not is_commit(source, place, room, source[start + 1]):
            break
        committed = buffer_access.long_at(source, place + 2)
        if committed < 0:
            break
        if entry < 0:
            entry = len(keys)
            if known is None or entry >= entries or not is_plain_key(source, start, length) or key in known:
                break
            entry_of[key] = entry
            keys.append(key)
            values.append(key)
            table[4 * entry + 2] = committed
        if committed < table[4 * entry + 2]:
            if keeps_rewinds:
                break
            table[4 * entry + 3] = table[4 * entry + 3] + 1
        table[4 * entry] = records[C.R_OFFSET * capacity + at]
        table[4 * entry + 1] = timestamp
        table[4 * entry + 2] = committed
        values[entry] = bytes(source[place : place + room])
        at = at + 1
    return at


def skip_commits(
    body: Readable, records: Readable, capacity: int, at: int, count: int, groups: set[bytes]
) -> int:
    """The first of the records `at` … count − 1 that is neither a valid commit of one of these groups nor the tombstone of one, with a
    key as a broker writes it; `count` if all are."""
    if count > capacity or C.RECORD_WIDTH * capacity > len(records) or at < 0:
        raise ValueError("a table is smaller than its capacity says")
    source = buffer_access.bytes_in(body)
    size = len(body)
    while at < count:
        start = records[C.R_KEY_START * capacity + at]
        length = records[C.R_KEY_LENGTH * capacity + at]
        place = records[C.R_VALUE_START * capacity + at]
        room = records[C.R_VALUE_LENGTH * capacity + at]
        if length < 10:
            break
        if start < 0 or start > size - length or (room >= 0 and (place < 0 or place > size - room)):
            raise ValueError("a record lies outside its buffer")
        if not is_plain_key(source, start, length):
            break
        name = start + 4
        group = bytes(source[name : name + ((source[start + 2] << 8) | source[start + 3])])
        if group not in groups or (room >= 0 and not is_commit(source, place, room, 1)):
            break
        at = at + 1
    return at
