"""Policy `salvage` for 0.7: every valid message stays, and stays where it is.

In 0.7 an offset is a byte position, so bytes cannot be taken out of the middle: each message behind them would get
another offset, and the files would no longer join, of which a broker dies. Damage is therefore treated by its place:

1. A message whose magic byte alone is wrong gets it back when its checksum then holds: magic lies outside of it.
2. Damage at the end of the last file is cut off, as a broker does.
3. Any other damage is overwritten with entries of the same length that are valid and hold nothing (`filler`), so that
   broker and consumers go on behind it. Where fewer than 9 bytes are damaged, the valid message in front of them
   (or, at the beginning of a file, behind them) goes too, as nothing fits into less; where fewer than 30 are, a
   consumer is given one message of zeros there, as no invisible entry is that small. The finding says both.
4. A file that ends before the next one begins is filled up to there; one that reaches beyond is filled from its last
   message that ends before. What it held beyond belongs to offsets that the next file holds.
5. No more than 32 MiB are filled in one directory. Damage beyond that stays as it is and is reported: consumers can be
   set behind it by hand; where files do not join, a broker refuses the directory.

What was overwritten or cut off goes to the quarantine with the file as it was.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import field, replace

from kseg.change.plan.content import Fresh, Piece, Span
from kseg.change.plan.directory_image import DirectoryImage
from kseg.recovery.kafka07.damage07 import Altered, Bad, Run, ValidBytes, runs
from kseg.recovery.kafka07.file_chain import Link
from kseg.recovery.kafka07.filler import LEAST_BYTES, filler, is_invisible
from kseg.recovery.kafka07.load07 import gap_finding
from kseg.recovery.policy import Removed, Repair
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.kafka07.messages07 import SIZE_FIELD, AncientEntry, walk
from kseg.segment.values import dataclass

MOST_FILLED_BYTES = 32 * 1024 * 1024


@dataclass(slots=True)
class _Work:
    """What the files of a directory add up to."""

    directory: str
    image: DirectoryImage
    room_bytes: int = MOST_FILLED_BYTES
    why: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def salvage_ancient(directory: str, links: tuple[Link, ...], image: DirectoryImage) -> Repair:
    """links: at least one. image: the directory as found. Raises UnreadableInput."""
    work = _Work(directory, image)
    end_offset = links[-1].end_offset
    for link in links:
        with MappedFile(os.path.join(directory, link.name)) as file:
            size_bytes = _repaired(work, link, file)
        end_offset = link.base_offset + size_bytes
    return Repair(
        image=work.image,
        log_start_offset=links[0].base_offset,
        log_end_offset=end_offset,
        last_stable_offset=end_offset,
        recovery_point=links[-1].base_offset,
        why=work.why,
        findings=tuple(work.findings),
        removed=tuple(work.removed),
        doubt="; ".join(work.doubts[:3]),
    )


def _repaired(work: _Work, link: Link, file: MappedFile) -> int:
    """Puts the file as it should be into the image; gives its size."""
    view = file.view
    wanted = None if link.next_base is None else link.next_base - link.base_offset
    found = _widened(_of_length(runs(file, wanted), len(view), wanted), cuts_tail=wanted is None)
    if not link.joins:
        work.findings.append(gap_finding(work.directory, link))
    pieces: list[Piece] = []
    for run in found:
        if isinstance(run, ValidBytes):
            pieces.append(Span(link.name, run.position, run.end_position - run.position))
        elif isinstance(run, Altered):
            pieces += _restored(work, link, run, view)
        elif wanted is None and run is found[-1]:
            _cut(work, link, run)
        else:
            pieces += _overwritten(work, link, run, len(view))
    size_bytes = sum(piece.length for piece in pieces)
    if wanted is not None and len(view) > wanted:
        items = walk(view, extents=file.extents)
        held = sum(isinstance(item, AncientEntry) and item.end_position > wanted for item in items)
        work.removed.append(Removed(link.name, wanted, len(view) - wanted, None, None, "ancient-gap", held))
    if size_bytes != len(view) or any(isinstance(piece, Fresh) for piece in pieces):
        work.image.write(link.name, pieces, link.name)
        work.why[link.name] = work.findings[-1].message
    return size_bytes


def _of_length(found: Iterable[Run], size_bytes: int, wanted: int | None) -> Iterator[Run]:
    """The runs cut or drawn out to the length that the chain wants (None: as it is)."""
    end, kind = 0, "ancient-gap"
    for run in found:
        if wanted is not None and isinstance(run, Bad):
            run = replace(run, end_position=min(run.end_position, wanted))
            if run.length <= 0:
                continue
            if run.end_position == size_bytes:  # drawn out with what is missing behind it
                kind = run.kind
                continue
        yield run
        end = run.end_position
    if wanted is not None and end < wanted:
        yield Bad(kind, end, wanted)


def _widened(found: Iterable[Run], *, cuts_tail: bool) -> list[Run]:
    """Damage that is too small for any entry takes a valid neighbour with it; cuts_tail: not so at the end."""
    waiting = list(found)
    done: list[Run] = []
    for number, run in enumerate(waiting):
        last = done[-1] if done else None
        is_cut = cuts_tail and number == len(waiting) - 1
        if isinstance(run, ValidBytes) and isinstance(last, Bad) and last.length < LEAST_BYTES:
            done[-1] = replace(last, end_position=run.first_end, entries=1)
            run = replace(run, position=run.first_end, entries=run.entries - 1)
        elif (
            isinstance(run, Bad) and isinstance(last, ValidBytes) and run.length < LEAST_BYTES and not is_cut
        ):
            run = replace(run, position=last.last_start, entries=1)
            done[-1] = replace(last, end_position=last.last_start, entries=last.entries - 1)
        done.append(run)
        _tidy(done)
    return done


def _tidy(done: list[Run]) -> None:
    """Drops entries that were all taken at the end of `done`, and joins the damage around them."""
    before, run = (done[-2] if len(done) > 1 else None), done[-1]
    if isinstance(run, ValidBytes) and not run.entries:
        done.pop()
        return
    if isinstance(before, ValidBytes) and not before.entries:
        del done[-2]
        before = done[-2] if len(done) > 1 else None
    if isinstance(before, Bad) and isinstance(run, Bad):
        done[-2:] = [replace(before, end_position=run.end_position, entries=before.entries + run.entries)]


def _overwritten(work: _Work, link: Link, run: Bad, size_bytes: int) -> list[Piece]:
    held = max(0, min(run.end_position, size_bytes) - run.position)
    missing = run.length - held
    what = f"{run.length} bytes at position {run.position} hold no message"
    if missing:
        what += f" ({missing} of them are missing)"
    if run.length < LEAST_BYTES or run.length > work.room_bytes:
        reason = "no entry is that small" if run.length < LEAST_BYTES else "that is more than is overwritten"
        message = f"{what}; {reason}, they stay as they are"
        work.findings.append(_finding(work, link, run, message, held))
        work.doubts.append(f"{link.name}: {message}")
        return [Span(link.name, run.position, held)]
    work.room_bytes -= run.length
    if run.entries:
        what += f", {run.entries} valid beside them counted in"
    seen = "consumers pass over it" if is_invisible(run.length) else "consumers are given zeros for it"
    message = (
        f"{what}; an entry of the same length takes their place, so that offsets behind it stay ({seen})"
    )
    work.findings.append(_finding(work, link, run, message, held))
    if held:
        work.removed.append(_removed(link, run, held))
    return [Fresh(filler(run.length))]


def _cut(work: _Work, link: Link, run: Bad) -> None:
    message = f"{run.length} bytes at the end of the log, from position {run.position} on, hold no message"
    work.findings.append(_finding(work, link, run, message))
    work.removed.append(_removed(link, run, run.length))


def _restored(work: _Work, link: Link, run: Altered, view: memoryview) -> list[Piece]:
    """The entry with its magic byte set right."""
    place = run.position + SIZE_FIELD
    message = f"the magic byte at position {place} is {view[place]}; with {run.magic} the checksum holds"
    work.findings.append(_finding(work, link, Bad("bad-magic", run.position, run.end_position), message))
    front = Span(link.name, run.position, SIZE_FIELD)
    return [front, Fresh(bytes([run.magic])), Span(link.name, place + 1, run.end_position - place - 1)]


def _finding(work: _Work, link: Link, run: Bad, message: str, held: int | None = None) -> Finding:
    """held: how many of the bytes are in the file, None for all."""
    path = os.path.join(work.directory, link.name)
    first, last = link.base_offset + run.position, link.base_offset + run.end_position - 1
    return Finding(run.kind, path, message, run.position, run.length if held is None else held, first, last)


def _removed(link: Link, run: Bad, length: int) -> Removed:
    first, last = replace(run, end_position=run.position + length).offsets(link.base_offset)
    return Removed(link.name, run.position, length, first, last, run.kind, run.entries)
