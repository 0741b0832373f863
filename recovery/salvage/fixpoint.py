"""Salvage looks again at what it would leave, until it would leave that as it is.

A doubt is settled by what surrounds a batch, and a repair changes the surroundings: a batch that was put where it
belongs may prove the next one wrong, a file beside the log that was cut is no witness any more. So a second salvage
could go on where the first one ended. Here it does, before anything is changed:

1. The planned directory is read as if it were there (`image_reader`), under the circumstances that the repair will leave.
2. The same steps judge it. When they would change nothing the plan is final.
3. Else both plans become one: contents are traced back to the files as found, and so is what goes and what is said.

That ends: a round takes bytes out, or settles a header by what the round before has put beside it. Where it would not
end, or there is no room for large files to be put together, the plan reached stands. Where only room behind the
entries of an index goes, or files come that were missing, there is nothing new to judge by.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from kseg.change.plan.content import Content, Fresh, Made, Piece, Span, content_of
from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.steps import FileIdentity
from kseg.recovery.policy import Circumstances, LoadSettings, Removed, Repair
from kseg.recovery.salvage.image_reader import ImageReader, identities
from kseg.recovery.salvage.losses import Kept
from kseg.recovery.salvage.one_pass import look
from kseg.recovery.salvage.working_image import Draft
from kseg.segment.errors import Refused
from kseg.segment.findings import INFO, Finding
from kseg.segment.partition.names import INDEX_ROLES, Role, parse_file_name

MOST_ROUNDS = 8


def settled(repair: Repair, draft: Draft, circumstances: Circumstances, settings: LoadSettings) -> Repair:
    """The repair that another salvage would leave as it is. repair: of one look at `draft`."""
    inputs = tuple(draft.identities.values())
    for _ in range(MOST_ROUNDS):
        if not _is_worth_a_look(draft.found, repair.image):
            break
        planned = _planned(draft.directory, inputs, repair, settings)
        with suppress(Refused):
            again = look(planned, _afterwards(circumstances, repair), settings, rebuild=False)
            if again.image != planned.found:
                repair = _Joined(draft, repair, again).repair
                continue
        break
    return repair


def findings_afterwards(
    directory: str,
    inputs: tuple[FileIdentity, ...],
    repair: Repair,
    circumstances: Circumstances,
    settings: LoadSettings,
) -> tuple[Finding, ...]:
    """What salvage would say of the directory once it is as in `repair`, of either policy. inputs: its files as found.

    Raises UnreadableInput, and Refused when there is no room to put a large file together."""
    planned = _planned(directory, inputs, repair, settings)
    return look(planned, _afterwards(circumstances, repair), settings, rebuild=False).findings


def _planned(
    directory: str, inputs: tuple[FileIdentity, ...], repair: Repair, settings: LoadSettings
) -> Draft:
    files = identities(repair.image, inputs, settings.now_ms)
    return Draft(directory, files, ImageReader(directory, repair.image))


def _is_worth_a_look(found: DirectoryImage, image: DirectoryImage) -> bool:
    """Whether anything changes by which batches are judged."""
    for name in found:
        before = found.content(name)
        if name not in image:
            return True
        content = image.content(name)
        is_index = parse_file_name(name).role in INDEX_ROLES
        if content != before and not (is_index and content == _beginning(before, image.size_bytes(name))):
            return True
    return any(parse_file_name(name).role is Role.LOG for name in image if name not in found)


def _beginning(content: Content, size_bytes: int) -> Content:
    return content_of(_slice(content, 0, size_bytes))


def _afterwards(circumstances: Circumstances, repair: Repair) -> Circumstances:
    """What the data directory will say of the repaired partition."""
    end_offset, high_watermark = repair.log_end_offset, circumstances.high_watermark
    return replace(
        circumstances,
        recovery_point=min(circumstances.recovery_point, end_offset),
        log_start_offset=repair.log_start_offset,
        high_watermark=None if high_watermark is None else min(high_watermark, end_offset),
    )


class _Joined:
    """Two rounds as one repair. former: planned for the files of `draft`; later: for what that leaves."""

    def __init__(self, draft: Draft, former: Repair, later: Repair) -> None:
        self._draft = draft
        self._former = former
        self._later = later
        self._kept = Kept(later.kept)

    @property
    def repair(self) -> Repair:
        image = self._image()
        return replace(
            self._later,
            image=image,
            why=dict(self._why(image)),
            findings=(*self._former.findings, *self._new_findings()),
            removed=tuple(sorted([*self._still_removed(), *self._now_removed()], key=_place)),
        )

    def _image(self) -> DirectoryImage:
        former, later, image = self._former.image, self._later.image, DirectoryImage()
        for name in later:
            like = later.like(name)
            if like is not None:
                like = former.like(like) if like in former else None
            pieces = [traced for piece in later.content(name) for traced in self._traced(piece)]
            image.write(name, pieces, like)
        return image

    def _traced(self, piece: Piece) -> Iterator[Piece]:
        if isinstance(piece, Span):
            yield from _slice(self._former.image.content(piece.name), piece.position, piece.length)
        else:
            yield piece

    def _why(self, image: DirectoryImage) -> Iterator[tuple[str, str]]:
        found = self._draft.found
        for name in sorted({*found, *image}):
            if name in found and name in image and found.content(name) == image.content(name):
                continue
            said = [why[name] for why in (self._former.why, self._later.why) if name in why]
            yield name, "; ".join(dict.fromkeys(said))

    # --- what goes

    def _still_removed(self) -> Iterator[Removed]:
        """What went before; offsets that are held again are not lost."""
        for removed in self._former.removed:
            first, last, records = removed.first_offset, removed.last_offset, removed.records
            if first is not None and last is not None:
                still = self._kept.without(first, last)
                if still != (first, last):
                    records = 0 if still is None else None
                first, last = still or (None, None)
            yield replace(removed, first_offset=first, last_offset=last, records=records)

    def _now_removed(self) -> Iterator[Removed]:
        for removed in self._later.removed:
            offsets = removed.first_offset, removed.last_offset
            batches, records = removed.batches, removed.records
            for span in self._origins(removed.file, removed.position, removed.length):
                first, last = offsets
                yield Removed(
                    span.name, span.position, span.length, first, last, removed.cause, batches, records
                )
                offsets, batches, records = (None, None), 0, 0

    def _origins(self, name: str, position: int, length: int) -> Iterator[Span]:
        """Where these bytes of a planned file lie in the files as found; a header that was set right stands for the
        bytes that it replaces."""
        pieces = content_of(_as_found(self._former.image.content(name)))
        for piece in _slice(pieces, position, length):
            if isinstance(piece, Span):
                yield piece

    # --- what is said

    def _new_findings(self) -> Iterator[Finding]:
        told = {_mark(finding) for finding in self._former.findings}
        for finding in self._later.findings:
            if finding.severity == INFO:
                continue
            traced = self._traced_finding(finding)
            if _mark(traced) not in told:
                yield traced

    def _traced_finding(self, finding: Finding) -> Finding:
        name = os.path.basename(finding.path)
        if name not in self._former.image:
            return finding
        spans = [*self._origins(name, finding.position or 0, max(1, finding.length or 0))]
        if not spans:
            return finding
        path, position = os.path.join(self._draft.directory, spans[0].name), spans[0].position
        if finding.position is None:
            return replace(finding, path=path)
        message = finding.message
        if (spans[0].name, position) != (name, finding.position):
            message = f"in the repaired {name}, {message}"  # which names a position there
        return replace(finding, path=path, position=position, message=message)


def _slice(content: Content, position: int, length: int) -> Iterator[Piece]:
    """The pieces of these bytes of a file."""
    start = 0
    for piece in content:
        low, high = max(position, start), min(position + length, start + piece.length)
        if low < high:
            match piece:
                case Span():
                    yield Span(piece.name, piece.position + low - start, high - low)
                case Fresh():
                    yield Fresh(piece.data[low - start : high - start])
                case Made():
                    raise AssertionError("salvage makes no piece ahead")
        start += piece.length


def _as_found(content: Content) -> Iterator[Piece]:
    """The content with the bytes as found where a header is set right: what follows it tells where they lie."""
    for number, piece in enumerate(content):
        following = content[number + 1] if number + 1 < len(content) else None
        if isinstance(piece, Fresh) and isinstance(following, Span) and following.position >= piece.length:
            yield Span(following.name, following.position - piece.length, piece.length)
        else:
            yield piece


def _place(removed: Removed) -> tuple[int, str, int]:
    name = parse_file_name(removed.file)
    return name.base_offset or 0, removed.file, removed.position


def _mark(finding: Finding) -> tuple[str, str, int | None]:
    return finding.id, finding.path, finding.position
