"""Policy `salvage` for 0.7: keep every valid message, and keep it where it is.

In 0.7 an offset is a byte position, so bytes cannot be removed from the middle: every later message would change
its offset, and the files would no longer join, which stops a broker. The repair depends on where the damage is:

1. A message whose magic byte alone is wrong gets the right one when its checksum then matches: the CRC does not cover magic.
2. Damage at the end of the last file is cut off, as a broker does.
3. Any other damage is overwritten with valid, empty entries of the same length (`filler`), so that broker and consumers
   continue after it. Where fewer than 9 bytes are damaged, no entry fits, so the previous valid message (or, at the start of a
   file, the next one) is overwritten as well. Where fewer than 30 bytes are damaged, no empty set fits, and consumers receive one
   message of zeros. The finding reports both.
4. A file that ends before the next one starts is filled up to that offset; one that extends past it is filled after its last message that
   ends before it. The offsets past it belong to the next file.
5. At most 32 MiB are filled in one directory. Damage beyond that is left as it is and reported: an operator can move consumers
   past it; where files do not join, a broker refuses the directory.

What is overwritten or truncated goes to the quarantine with the original file.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import field, replace

from kseg.change.plan.content import Fresh, Piece, Span
from kseg.change.plan.directory_image import DirectoryImage
from kseg.recovery.kafka07.damage07 import DamagedBytes, Run, ValidBytes, WrongMagicEntry, runs
from kseg.recovery.kafka07.filler import MIN_BYTES, filler, is_skipped_by_consumers
from kseg.recovery.kafka07.load07 import Link, gap_finding
from kseg.recovery.policy import Removed, Repair
from kseg.segment.counted import counted
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.kafka07.messages07 import SIZE_FIELD, Entry07, walk
from kseg.segment.values import dataclass

MAX_FILLED_BYTES = 32 * 1024 * 1024


@dataclass(slots=True)
class _RepairedDirectory:
    """The totals over the files of a directory."""

    directory: str
    image: DirectoryImage
    fill_budget_bytes: int = MAX_FILLED_BYTES
    why: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def salvage07(directory: str, links: tuple[Link, ...], image: DirectoryImage) -> Repair:
    """The result of policy salvage for a 0.7 partition. links: at least one. image: the directory as found. Raises UnreadableInput."""
    repaired = _RepairedDirectory(directory, image)
    end_offset = links[-1].end_offset
    for link in links:
        with MappedFile(os.path.join(directory, link.name)) as file:
            size_bytes = _repaired(repaired, link, file)
        end_offset = link.base_offset + size_bytes
    return Repair(
        image=repaired.image,
        log_start_offset=links[0].base_offset,
        log_end_offset=end_offset,
        last_stable_offset=end_offset,
        recovery_point=links[-1].base_offset,
        why=repaired.why,
        findings=tuple(repaired.findings),
        removed=tuple(repaired.removed),
        doubt="; ".join(repaired.doubts[:3]),
    )


def _repaired(repaired: _RepairedDirectory, link: Link, file: MappedFile) -> int:
    """Put the repaired file into the image; return its size in bytes."""
    view = file.view
    wanted = None if link.next_base is None else link.next_base - link.base_offset
    found = _widened(_of_length(runs(file, wanted), len(view), wanted), cuts_tail=wanted is None)
    if not link.joins:
        repaired.findings.append(gap_finding(repaired.directory, link))
    pieces: list[Piece] = []
    for run in found:
        if isinstance(run, ValidBytes):
            pieces.append(Span(link.name, run.position, run.end_position - run.position))
        elif isinstance(run, WrongMagicEntry):
            pieces += _restored(repaired, link, run, view)
        elif wanted is None and run is found[-1]:
            _cut(repaired, link, run)
        else:
            pieces += _overwritten(repaired, link, run, len(view))
    size_bytes = sum(piece.length for piece in pieces)
    if wanted is not None and len(view) > wanted:
        items = walk(view, extents=file.extents)
        present = sum(isinstance(item, Entry07) and item.end_position > wanted for item in items)
        repaired.removed.append(
            Removed(link.name, wanted, len(view) - wanted, None, None, "ancient-gap", present)
        )
    if size_bytes != len(view) or any(isinstance(piece, Fresh) for piece in pieces):
        repaired.image.write(link.name, pieces, link.name)
        repaired.why[link.name] = repaired.findings[-1].message
    return size_bytes


def _of_length(found: Iterable[Run], size_bytes: int, wanted: int | None) -> Iterator[Run]:
    """The runs, truncated or extended to the length that the chain requires (None: unchanged)."""
    end, kind = 0, "ancient-gap"
    for run in found:
        if wanted is not None and isinstance(run, DamagedBytes):
            run = replace(run, end_position=min(run.end_position, wanted))
            if run.length <= 0:
                continue
            # merged below with the bytes that are missing after it
            if run.end_position == size_bytes:
                kind = run.kind
                continue
        yield run
        end = run.end_position
    if wanted is not None and end < wanted:
        yield DamagedBytes(kind, end, wanted)


def _widened(found: Iterable[Run], *, cuts_tail: bool) -> list[Run]:
    """Extend damage that is too small for any entry by a valid neighbour. cuts_tail: do not extend damage at the end."""
    waiting = list(found)
    done: list[Run] = []
    for number, run in enumerate(waiting):
        last = done[-1] if done else None
        is_cut = cuts_tail and number == len(waiting) - 1
        if isinstance(run, ValidBytes) and isinstance(last, DamagedBytes) and last.length < MIN_BYTES:
            done[-1] = replace(last, end_position=run.first_end, entries=1)
            run = replace(run, position=run.first_end, entries=run.entries - 1)
        elif (
            isinstance(run, DamagedBytes)
            and isinstance(last, ValidBytes)
            and run.length < MIN_BYTES
            and not is_cut
        ):
            run = replace(run, position=last.last_start, entries=1)
            done[-1] = replace(last, end_position=last.last_start, entries=last.entries - 1)
        done.append(run)
        _tidy(done)
    return done


def _tidy(done: list[Run]) -> None:
    """Drop the entries at the end of `done` that the filler replaces, and join the damage around them."""
    before, run = (done[-2] if len(done) > 1 else None), done[-1]
    if isinstance(run, ValidBytes) and not run.entries:
        done.pop()
        return
    if isinstance(before, ValidBytes) and not before.entries:
        del done[-2]
        before = done[-2] if len(done) > 1 else None
    if isinstance(before, DamagedBytes) and isinstance(run, DamagedBytes):
        done[-2:] = [replace(before, end_position=run.end_position, entries=before.entries + run.entries)]


def _overwritten(repaired: _RepairedDirectory, link: Link, run: DamagedBytes, size_bytes: int) -> list[Piece]:
    present = max(0, min(run.end_position, size_bytes) - run.position)
    missing = run.length - present
    what = f"no message in the {counted(run.length, 'byte')} at position {run.position}"
    if missing:
        what += f" ({missing} of them are missing)"
    if run.length < MIN_BYTES or run.length > repaired.fill_budget_bytes:
        reason = "no entry is that small" if run.length < MIN_BYTES else "that is more than kseg overwrites"
        message = f"{what}; {reason}, so they are left as they are"
        repaired.findings.append(_finding(repaired, link, run, message, present))
        repaired.doubts.append(f"{link.name}: {message}")
        return [Span(link.name, run.position, present)]
    repaired.fill_budget_bytes -= run.length
    if run.entries:
        what += f", including {run.entries} valid next to them"
    seen = "consumers skip it" if is_skipped_by_consumers(run.length) else "consumers receive zeros for it"
    message = (
        f"{what}; an entry of the same length replaces them, so that later offsets do not change ({seen})"
    )
    repaired.findings.append(_finding(repaired, link, run, message, present))
    if present:
        repaired.removed.append(_removed(link, run, present))
    return [Fresh(filler(run.length))]


def _cut(repaired: _RepairedDirectory, link: Link, run: DamagedBytes) -> None:
    message = f"no message in the last {counted(run.length, 'byte')} of the log, from position {run.position}"
    repaired.findings.append(_finding(repaired, link, run, message))
    repaired.removed.append(_removed(link, run, run.length))


def _restored(
    repaired: _RepairedDirectory, link: Link, run: WrongMagicEntry, view: memoryview
) -> list[Piece]:
    """The entry with its magic byte corrected."""
    place = run.position + SIZE_FIELD
    message = f"the magic byte at position {place} is {view[place]}; the checksum matches with {run.magic}"
    repaired.findings.append(
        _finding(repaired, link, DamagedBytes("bad-magic", run.position, run.end_position), message)
    )
    front = Span(link.name, run.position, SIZE_FIELD)
    return [front, Fresh(bytes([run.magic])), Span(link.name, place + 1, run.end_position - place - 1)]


def _finding(
    repaired: _RepairedDirectory, link: Link, run: DamagedBytes, message: str, present: int | None = None
) -> Finding:
    """present: the number of these bytes that are in the file, None for all."""
    path = os.path.join(repaired.directory, link.name)
    first, last = link.base_offset + run.position, link.base_offset + run.end_position - 1
    return Finding(
        run.kind, path, message, run.position, run.length if present is None else present, first, last
    )


def _removed(link: Link, run: DamagedBytes, length: int) -> Removed:
    first, last = replace(run, end_position=run.position + length).offsets(link.base_offset)
    return Removed(link.name, run.position, length, first, last, run.kind, run.entries)
