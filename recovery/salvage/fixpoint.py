"""Run salvage on its own result until the result no longer changes.

Adjacent batches resolve a doubt, and a repair changes which batches are adjacent: a batch that was moved to its place may prove the next
one wrong, and a truncated side file is no longer evidence. So a second salvage could continue where the first one ended. To avoid
that, the plan is completed before anything changes on disk:

1. The planned directory is read as if it existed (`image_reader`), with the broker state that the repair will leave.
2. The same steps assess it. If they would change nothing, the plan is final.
3. Otherwise both plans are merged: contents, removed bytes and findings are traced back to the original files.

This terminates: a round removes bytes, or corrects a header because of a batch that the previous round put next to it. If it does not
terminate, or there is no space to assemble large files, the plan of the last round is used. A round that only trims an index or rebuilds
one, whose entries agree with the log, or adds missing files leaves nothing new to assess.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from kseg.change.plan.content import Content, Fresh, Made, Piece, Span, content_of
from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.steps import FileIdentity
from kseg.recovery.policy import BrokerState, LoadSettings, Removed, Repair, Restorable
from kseg.recovery.salvage.image_reader import ImageReader, identities
from kseg.recovery.salvage.kept_offsets import KeptOffsets
from kseg.recovery.salvage.losses import lost_offsets
from kseg.recovery.salvage.one_pass import salvage_once
from kseg.recovery.salvage.restored_bytes import is_wanted, restored_round
from kseg.recovery.salvage.unchanged import unchanged_repair
from kseg.recovery.salvage.working_image import WorkingImage
from kseg.segment.errors import Refused
from kseg.segment.findings import INFO, Finding
from kseg.segment.partition.names import INDEX_ROLES, NAME_BY_ROLE, PartitionName, Role, parse_file_name

MAX_ROUNDS = 8
_EPOCHS = NAME_BY_ROLE[Role.LEADER_EPOCHS]


def salvaged_to_fixpoint(
    repair: Repair, working_image: WorkingImage, broker_state: BrokerState, settings: LoadSettings
) -> Repair:
    """A repair that a second salvage would not change. repair: planned by one pass over `working_image`."""
    inputs = tuple(working_image.identities.values())
    for _ in range(MAX_ROUNDS):
        if not _affects_verdicts(working_image.found, repair):
            break
        planned = _planned(working_image.directory, inputs, repair, settings)
        with suppress(Refused):
            lost = lost_offsets(repair.removed)
            again = salvage_once(planned, _afterwards(broker_state, repair), settings, lost=lost)
            if again.image != planned.found:
                repair = _Joined(working_image, repair, again).repair
                continue
        break
    return repair


def salvaged_after_restoring(
    restorable: Sequence[Restorable],
    working_image: WorkingImage,
    broker_state: BrokerState,
    settings: LoadSettings,
    *,
    rebuild: bool,
    repair_bits: bool,
) -> Repair:
    """The result of salvage once damaged bytes are restored (`restored_bytes`). restorable: what the first round reports. Raises
    Refused when there is no room to assemble a large file."""
    inputs = tuple(working_image.identities.values())
    restored: Repair | None = None
    while True:
        wanted = [each for each in restorable if is_wanted(each, with_bits=repair_bits)]
        if restored is not None and not wanted:
            break
        restored = restored_round(working_image, wanted, restored)
        planned = _planned(working_image.directory, inputs, restored, settings)
        later = salvage_once(planned, broker_state, settings, rebuild=rebuild)
        restorable = later.restorable
    repair = _Joined(working_image, restored, later, is_in_place=True).repair
    return salvaged_to_fixpoint(repair, working_image, broker_state, settings)


def findings_afterwards(
    directory: str,
    inputs: tuple[FileIdentity, ...],
    repair: Repair,
    broker_state: BrokerState,
    settings: LoadSettings,
    name: PartitionName | None = None,
) -> tuple[Finding, ...]:
    """The findings of salvage for the directory after `repair`, by either policy. inputs: its files as found. name: of the partition, if
    it owns all of these files; most partitions are ordinary after a load, and the quick check recognises that in a fraction of the time.

    Raises UnreadableInput, and Refused when there is no room to assemble a large file."""
    afterwards = _afterwards(broker_state, repair)
    if name is not None:
        reader = ImageReader(directory, repair.image)
        if unchanged_repair(directory, name, repair.image, afterwards, settings, reader) is not None:
            return ()
    planned = _planned(directory, inputs, repair, settings)
    return salvage_once(planned, afterwards, settings).findings


def _planned(
    directory: str, inputs: tuple[FileIdentity, ...], repair: Repair, settings: LoadSettings
) -> WorkingImage:
    files = identities(repair.image, inputs, settings.now_ms)
    return WorkingImage(directory, files, ImageReader(directory, repair.image))


def _affects_verdicts(found: DirectoryImage, repair: Repair) -> bool:
    """Whether anything changes that affects the verdicts on batches."""
    image = repair.image
    is_new = _EPOCHS in image and _EPOCHS not in found
    if is_new and any(finding.id == "leader-epoch-decreases" for finding in repair.findings):
        return True  # a file that was missing settles which of two epochs is wrong
    for name in found:
        before = found.content(name)
        if name not in image:
            return True
        content = image.content(name)
        if content == before:
            continue
        if parse_file_name(name).role not in INDEX_ROLES:
            return True
        found_wrong = _findings_of(name, repair)
        is_trimmed = not found_wrong and content == _beginning(before, image.size_bytes(name))
        if not is_trimmed and found_wrong != {"index-preallocated"}:
            return True
    return any(parse_file_name(name).role is Role.LOG for name in image if name not in found)


def _findings_of(name: str, repair: Repair) -> set[str]:
    return {finding.id for finding in repair.findings if os.path.basename(finding.path) == name}


def _beginning(content: Content, size_bytes: int) -> Content:
    return content_of(_slice(content, 0, size_bytes))


def _afterwards(broker_state: BrokerState, repair: Repair) -> BrokerState:
    """The data directory's state once the partition is repaired."""
    end_offset, high_watermark = repair.log_end_offset, broker_state.high_watermark
    return replace(
        broker_state,
        recovery_point=min(broker_state.recovery_point, end_offset),
        log_start_offset=repair.log_start_offset,
        high_watermark=None if high_watermark is None else min(high_watermark, end_offset),
    )


class _Joined:
    """Merge two rounds into one repair. previous: planned for the files of `working_image`; later: planned for the result of that.
    is_in_place: the previous round moved and removed no byte, and reported nothing about the rest."""

    def __init__(
        self, working_image: WorkingImage, previous: Repair, later: Repair, *, is_in_place: bool = False
    ) -> None:
        self._is_in_place = is_in_place
        self._working_image = working_image
        self._previous = previous
        self._later = later
        self._kept = KeptOffsets(later.kept)

    @property
    def repair(self) -> Repair:
        image = self._image()
        return replace(
            self._later,
            image=image,
            why=dict(self._why(image)),
            findings=(*self._previous.findings, *self._new_findings()),
            removed=tuple(sorted([*self._still_removed(), *self._now_removed()], key=_place)),
        )

    def _image(self) -> DirectoryImage:
        previous, later, image = self._previous.image, self._later.image, DirectoryImage()
        for name in later:
            like = later.like(name)
            if like is not None:
                like = previous.like(like) if like in previous else None
            pieces = [traced for piece in later.content(name) for traced in self._traced(piece)]
            image.write(name, pieces, like)
        return image

    def _traced(self, piece: Piece) -> Iterator[Piece]:
        if isinstance(piece, Span):
            yield from _slice(self._previous.image.content(piece.name), piece.position, piece.length)
        else:
            yield piece

    def _why(self, image: DirectoryImage) -> Iterator[tuple[str, str]]:
        found = self._working_image.found
        for name in sorted({*found, *image}):
            if name in found and name in image and found.content(name) == image.content(name):
                continue
            reasons = [why[name] for why in (self._previous.why, self._later.why) if name in why]
            yield name, "; ".join(dict.fromkeys(reasons))

    # --- what goes

    def _still_removed(self) -> Iterator[Removed]:
        """What the previous round removed, without the offsets that are kept after all. For valid batches, the first round has compared
        records: a batch does not keep the offsets that only its header covers."""
        for removed in self._previous.removed:
            first, last, records = removed.first_offset, removed.last_offset, removed.records
            is_counted = removed.batches and removed.records
            if first is not None and last is not None and not is_counted:
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
        """The spans of these bytes of a planned file in the original files; a corrected header maps to the bytes that it replaces."""
        pieces = content_of(_as_found(self._previous.image.content(name)))
        for piece in _slice(pieces, position, length):
            if isinstance(piece, Span):
                yield piece

    # --- what is said

    def _new_findings(self) -> Iterator[Finding]:
        reported = {_mark(finding) for finding in self._previous.findings}
        for finding in self._later.findings:
            if finding.severity == INFO and not self._is_in_place:
                continue
            traced = finding if self._is_in_place else self._traced_finding(finding)
            if _mark(traced) not in reported:
                yield traced

    def _traced_finding(self, finding: Finding) -> Finding:
        name = os.path.basename(finding.path)
        if name not in self._previous.image:
            return finding
        spans = [*self._origins(name, finding.position or 0, max(1, finding.length or 0))]
        if not spans:
            return finding
        path, position = os.path.join(self._working_image.directory, spans[0].name), spans[0].position
        if finding.position is None:
            return replace(finding, path=path)
        message = finding.message
        if (spans[0].name, position) != (name, finding.position):
            message = f"in the repaired {name}, {message}"  # the message names a position in that file
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
    """The content with original bytes in place of corrected ones; the piece after or before them gives their position."""
    for number, piece in enumerate(content):
        following = content[number + 1] if number + 1 < len(content) else None
        preceding = content[number - 1] if number and following is None else None
        if isinstance(piece, Fresh) and isinstance(following, Span) and following.position >= piece.length:
            yield Span(following.name, following.position - piece.length, piece.length)
        elif isinstance(piece, Fresh) and isinstance(preceding, Span):  # the last byte of a log
            yield Span(preceding.name, preceding.end_position, piece.length)
        else:
            yield piece


def _place(removed: Removed) -> tuple[int, str, int]:
    name = parse_file_name(removed.file)
    return name.base_offset or 0, removed.file, removed.position


def _mark(finding: Finding) -> tuple[str, str, int | None]:
    return finding.id, finding.path, finding.position
