"""Plan the steps that replace the old segments, in Kafka's order (LocalLog.replaceSegments; fact sheet §8.9).

A broker that opens the directory between any two steps finds the old segments, or finishes the swap:

1. `.cleaned` files left by a broker are removed: as long as they exist, a broker would take the `.swap` files at or above them for
   unfinished ones and delete them.
2. A rolled log first loses its preallocated zeros (if its segment stays) and gets its new segment. Then, for each new segment
   in turn (the parts of a split one together):
3. Its files are written as `.cleaned`: a broker deletes those.
4. They are renamed to `.swap`, from the last segment to the first, each log first: as long as one `.cleaned` is left
   a broker deletes the `.swap` files as well.
5. The old segments are renamed to `.deleted`. A broker that finds `.swap` logs and no `.cleaned` deletes the old ones
   itself, and completes the names.
6. The `.swap` files get their final names, and the snapshots of segments that no longer exist become `.deleted`.
"""

from collections.abc import Iterator, Sequence

from kseg.change.plan.content import Content, Fresh, Made, Span, content_of
from kseg.change.plan.steps import Remove, Rename, Step, Truncate, Write
from kseg.compaction.cleaner.cleaning_evidence import CleaningEvidence, Roll
from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment import layout as L
from kseg.segment.partition.names import SEGMENT_ROLES, FileState, parse_file_name, segment_file_name

_SUFFIXES = (L.LOG_SUFFIX, L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX, L.TXN_INDEX_SUFFIX)


def swap_steps(
    evidence: CleaningEvidence, segments: Sequence[CleanerSegment], *, marks: bool
) -> tuple[Step, ...]:
    """Steps that replace the original segments by the new ones among `segments`; none if there are no new ones.

    marks: old files are renamed to `.deleted`; otherwise they are removed (for a copy, where marks are pointless).
    """
    sets = list(_sets(segments))
    if not sets and evidence.roll is None:
        return ()
    steps: list[Step] = list(_leftovers(evidence)) if sets else []
    if evidence.roll is not None:
        replaced = {
            name for new in sets for segment in new for origin in segment.origins for name in origin.names
        }
        steps += _roll_steps(evidence.roll, replaced)
    kept_bases = {segment.base_offset for segment in segments}
    for new in sets:
        steps += _set_steps(new, kept_bases, marks=marks)
    return tuple(steps)


def _sets(segments: Sequence[CleanerSegment]) -> Iterator[list[CleanerSegment]]:
    """The new segments, grouped by the original segment that they share."""
    current: list[CleanerSegment] = []
    for segment in segments:
        if segment.side_files is None:
            continue
        if current and not segment.joins_previous:
            yield current
            current = []
        current.append(segment)
    if current:
        yield current


def _leftovers(evidence: CleaningEvidence) -> Iterator[Step]:
    for file in evidence.inputs:
        name = parse_file_name(file.name)
        if name.state is FileState.CLEANED and name.role in SEGMENT_ROLES:
            yield Remove(file.name, "left over from an unfinished cleaning; a broker deletes it")


def _roll_steps(roll: Roll, replaced: set[str]) -> list[Step]:
    """replaced: names of files that are replaced anyway."""
    why = "the active segment is rolled; a new one starts at the log end offset"
    names = [segment_file_name(roll.base_offset, suffix) for suffix in _SUFFIXES[:3]]
    snapshot = segment_file_name(roll.base_offset, L.SNAPSHOT_SUFFIX)
    return [
        Write(snapshot, content_of([Fresh(roll.snapshot)]), "producer state at the roll"),
        *_completed_time_index(roll, replaced),
        *(
            Truncate(name, size_bytes, "what was preallocated is cut off, as a broker does when it rolls")
            for name, size_bytes in roll.preallocated
            if name not in replaced and not (roll.time_index and name == roll.time_index[0])
        ),
        *(Write(name, (), why) for name in names),
    ]


def _completed_time_index(roll: Roll, replaced: set[str]) -> Iterator[Step]:
    if roll.time_index is not None and roll.time_index[0] not in replaced:
        name, used_bytes, entry = roll.time_index
        pieces = content_of([Span(name, 0, used_bytes), Fresh(entry)])
        yield Write(name, pieces, "the greatest timestamp is added, as a broker does when it rolls", name)


def _set_steps(new: Sequence[CleanerSegment], kept_bases: set[int], *, marks: bool) -> Iterator[Step]:
    contents = [_files(segment) for segment in new]
    for segment, files in zip(new, contents, strict=True):
        for name, content in files:
            why = f"the records kept from {_listed(segment)}"
            like = None if name.endswith(L.TXN_INDEX_SUFFIX) else segment.like
            yield Write(f"{name}{L.CLEANED_SUFFIX}", content, why, like)
    for files in reversed(contents):
        for name, _ in files:
            yield Rename(
                f"{name}{L.CLEANED_SUFFIX}", f"{name}{L.SWAP_SUFFIX}", "complete, ready to be swapped in"
            )
    for segment in new:
        for origin in segment.origins:
            for name in origin.names:
                yield _removal(name, "replaced by the compacted segment", marks=marks)
    for files in contents:
        for name, _ in files:
            yield Rename(f"{name}{L.SWAP_SUFFIX}", name, "the compacted segment")
    for segment in new:
        for origin in segment.origins:
            if origin.snapshot is not None and origin.base_offset not in kept_bases:
                yield _removal(origin.snapshot, "no segment starts at this offset any more", marks=marks)


def _removal(name: str, why: str, *, marks: bool) -> Step:
    return Rename(name, f"{name}{L.DELETED_SUFFIX}", why) if marks else Remove(name, why)


def _files(segment: CleanerSegment) -> list[tuple[str, Content]]:
    side = segment.side_files
    assert side is not None
    log = Made(-1, segment.size_bytes, 0) if segment.log is None else segment.log.piece
    datas = [side.offset_index, side.time_index, *([side.txn_index] if side.txn_index else [])]
    contents = [content_of([log]), *(content_of([Fresh(data)]) for data in datas)]
    return [
        (segment_file_name(segment.base_offset, suffix), content)
        for suffix, content in zip(_SUFFIXES, contents, strict=False)
    ]


def _listed(segment: CleanerSegment) -> str:
    names = [origin.log_name for origin in segment.origins]
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}" if names else "the one before"
