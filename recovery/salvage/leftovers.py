"""Leftovers of interrupted cleanings, splits and deletions: resolved as by a broker, but without losing anything.

As a broker does (fact sheet §6.2, steps 1 to 5; policy kafka simulates it in `recovery.loading.swap_files`):

1. `.cleaned` files are removed: unfinished by definition.
2. `.swap` files at or above the offset of a `.cleaned` file belong to an unfinished replacement.
3. The other `.swap` files are complete: they replace every other file whose offset is between the smallest base offset and
   the largest next offset of their logs.

Where a broker would lose valid batches, salvage decides differently:

4. A complete replacement that is damaged is dropped in favour of the segments that it was to replace, if they still exist.
   So is a replacement with batches that these segments do not have: a cleaner removes records from batches, it never creates new ones.
5. A replacement for a range without any live log is used, complete or not: nothing else has these records.
6. Before a file is removed, batches that damage destroyed in a live log are restored from it (`sources`).

`.deleted` files are kept, whether or not the partition needs a repair, and even when records were restored from them: a
broker that was shut down cleanly leaves them too, and deletes them on its next start. It is unknown whether retention
was to delete a log or recovery removed it; the finding says which offsets exist nowhere else, and
`retain --unmark` restores them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter

from kseg.recovery.salvage.working_image import WorkingImage
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import offsets_words
from kseg.segment.findings import Finding
from kseg.segment.partition.names import FileName, FileState, Role, parse_file_name
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import Scanner
from kseg.segment.values import dataclass

# This many batches of each file of a replacement are compared with the segments that it would replace.
_MAX_COMPARED = 4096
_KRAFT_SNAPSHOT_DELETED = L.CHECKPOINT_SUFFIX + L.DELETED_SUFFIX


@dataclass(frozen=True, slots=True)
class Contents:
    """The content of a log that is set aside: first_offset … last_offset of its valid batches (None when there are none)."""

    size_bytes: int
    is_damaged: bool
    first_offset: int | None
    last_offset: int | None
    batches: int


@dataclass(frozen=True, slots=True)
class LeftoverLog:
    """A log that no longer belongs to the partition. name: as found. is_replaced: other files took its place. is_kept: the file stays;
    all others leave the directory."""

    name: str
    contents: Contents
    cause: str
    is_replaced: bool = False
    is_kept: bool = False


class Leftovers:
    """Resolves leftovers in a working image; `findings` and `logs` hold the results."""

    def __init__(self, working_image: WorkingImage) -> None:
        self._working_image = working_image
        self.findings: list[Finding] = []
        self.logs: list[LeftoverLog] = []

    @property
    def are_marks_only(self) -> bool:
        """Whether all leftovers are files that are marked for deletion."""
        states = {parse_file_name(name).state for name in self._working_image.image}
        return FileState.CLEANED not in states and FileState.SWAP not in states

    def resolve(self) -> None:
        names = [parse_file_name(name) for name in self._working_image.image]
        aside = [
            name for name in names if name.state in (FileState.DELETED, FileState.CLEANED, FileState.SWAP)
        ]
        if not aside:
            return
        cleaned = [name for name in aside if name.state is FileState.CLEANED]
        swaps = [name for name in aside if name.state is FileState.SWAP]
        least = min((name.base_offset for name in cleaned if name.base_offset is not None), default=None)
        self._resolve_swaps(swaps, least)
        for name in aside:
            if name.state is FileState.DELETED and not name.name.endswith(_KRAFT_SNAPSHOT_DELETED):
                self._leave(name)
        for name in cleaned:
            self._drop(name, "leftover-cleaned", "left by an unfinished cleaning or split")

    # --- replacements

    def _resolve_swaps(self, swaps: list[FileName], least_cleaned: int | None) -> None:
        contents = {name.name: self._scan(name.name) for name in swaps if name.role is Role.LOG}
        logs = [name for name in swaps if name.role is Role.LOG]
        unfinished = {
            name.base_offset
            for name in logs
            if least_cleaned is not None and (name.base_offset or 0) >= least_cleaned
        }
        finished = [name for name in logs if name.base_offset not in unfinished]
        if finished:
            begin, end = _range(finished, contents)
            live = [*self._live_logs(begin, end)]
            is_damaged = any(contents[name.name].is_damaged for name in finished)
            if live and (is_damaged or self._is_foreign([name.name for name in finished], live)):
                unfinished |= {name.base_offset for name in finished}
            else:
                self._replace(begin, end)
        for name in logs:
            begin, end = _range([name], contents)
            if name.base_offset in unfinished and not any(self._live_logs(begin, end)):
                unfinished.discard(name.base_offset)
        has_log = {name.base_offset for name in logs}
        for name in swaps:
            if name.base_offset in unfinished or name.base_offset not in has_log:
                self._drop(name, "leftover-swap", "part of an unfinished cleaning or split")
            else:
                self._complete(name)

    def _replace(self, begin: int, end: int) -> None:
        for name in list(self._working_image.image):
            parsed = parse_file_name(name)
            if (
                parsed.state in (FileState.SWAP, FileState.DELETED)
                or parsed.base_offset is None
                or not begin <= parsed.base_offset < end
            ):
                continue
            if parsed.role is Role.METADATA_SNAPSHOT:
                continue
            if parsed.role is Role.LOG and parsed.is_live:
                self.logs.append(LeftoverLog(name, self._scan(name), "leftover-swap", is_replaced=True))
            self._working_image.remove(
                name, f"replaced by a finished cleaning or split of {offsets_words(begin, end - 1)}"
            )

    def _is_foreign(self, swaps: Iterable[str], live: Iterable[str]) -> bool:
        """Whether the batches of a replacement mostly differ from those of the live logs at their offsets, or lie below its name."""
        claims, like, unlike = list[tuple[int, int, int]](), 0, 0
        for name in swaps:
            base_offset = parse_file_name(name).base_offset or 0
            for claim in islice(self._batches(name), _MAX_COMPARED):
                if claim[0] < base_offset:
                    unlike += 1
                else:
                    claims.append(claim)
        if not claims:
            return unlike > 0
        low, high = min(first for first, _, _ in claims), max(last for _, last, _ in claims)
        held = sorted(
            (first, last, epoch)
            for name in live
            for first, last, epoch in self._batches(name)
            if first <= high and last >= low
        )
        for claim in claims:
            at = bisect_right(held, claim[1], key=itemgetter(0)) - 1
            if at >= 0 and claim == held[at]:
                like += 1
            elif 0 <= at < len(held) - 1 or (at >= 0 and held[at][1] >= claim[0]):
                unlike += 1  # between batches that still exist, or across one of them
        return unlike > like

    def _batches(self, name: str) -> Iterator[tuple[int, int, int]]:
        """First offset, last offset and leader epoch of each valid batch of magic 2."""
        with self._working_image.reader.open(self._working_image.path(name)) as file:
            for block in Scanner.over(file, parse_file_name(name).base_offset or 0).blocks():
                if isinstance(block, Damage):
                    continue
                for row in range(block.count):
                    if block.at(C.MAGIC, row) >= L.MAGIC_V2:
                        offsets = block.at(C.BASE_OFFSET, row), block.at(C.LAST_OFFSET, row)
                        yield *offsets, block.at(C.LEADER_EPOCH, row)

    def _complete(self, name: FileName) -> None:
        new_name = name.name.removesuffix(L.SWAP_SUFFIX)
        self._report("leftover-swap", name, f"{name.name} is complete and replaces its segments")
        self._working_image.rename(name.name, new_name, "a finished cleaning or split is completed")

    def _live_logs(self, begin: int, end: int) -> Iterator[str]:
        """Live logs that may have a batch in begin … end - 1, and those that a replacement of this range removes."""
        live = sorted(
            (parsed.base_offset, name)
            for name in self._working_image.image
            if (parsed := parse_file_name(name)).is_live
            and parsed.role is Role.LOG
            and parsed.base_offset is not None
        )
        for at, (base, name) in enumerate(live):
            following = live[at + 1][0] if at + 1 < len(live) else L.INT64_MAX
            if base < end and following > begin and self._working_image.image.size_bytes(name):
                contents = self._scan(name)
                if contents.first_offset is None or contents.last_offset is None:
                    continue
                is_replaced = begin <= base < end
                if is_replaced or (contents.first_offset < end and contents.last_offset >= begin):
                    yield name

    # --- what goes, and what stays

    def _leave(self, name: FileName) -> None:
        if name.role is Role.LOG:
            self.logs.append(LeftoverLog(name.name, self._scan(name.name), "leftover-deleted", is_kept=True))
        else:
            self._report("leftover-deleted", name, f"{name.name} is kept: it is marked for deletion")

    def _drop(self, name: FileName, kind: str, why: str) -> None:
        if name.name not in self._working_image.image:
            return
        if name.role is Role.LOG:
            self.logs.append(LeftoverLog(name.name, self._scan(name.name), kind))
        else:
            self._report(kind, name, f"{name.name} is removed: {why}")
        self._working_image.remove(name.name, why)

    def _report(self, kind: str, name: FileName, message: str) -> None:
        size = self._working_image.image.size_bytes(name.name)
        path = self._working_image.path(name.name)
        self.findings.append(Finding(kind, path, message, 0, size, name.base_offset))

    def _scan(self, name: str) -> Contents:
        batches, is_damaged = 0, False
        first: int | None = None
        last: int | None = None
        with self._working_image.reader.open(self._working_image.path(name)) as file:
            for block in Scanner.over(file, parse_file_name(name).base_offset or 0).blocks():
                if isinstance(block, Damage):
                    is_damaged = True
                    continue
                batches += block.count
                low, high = min(block.column(C.BASE_OFFSET)), max(block.column(C.LAST_OFFSET))
                first = low if first is None else min(first, low)
                last = high if last is None else max(last, high)
            return Contents(file.size_bytes, is_damaged, first, last, batches)


def leftover_findings(
    working_image: WorkingImage, logs: Iterable[LeftoverLog], kept: Iterable[tuple[int, int]]
) -> Iterator[Finding]:
    """The contents of leftover logs, reported once the kept offsets are known (ranges, in order)."""
    ranges = list(kept)
    for log in logs:
        if log.is_replaced:
            continue
        contents = log.contents
        message = f"{log.name} {'is kept: it is marked for deletion' if log.is_kept else 'is removed'}"
        is_missing = False
        if contents.first_offset is not None and contents.last_offset is not None:
            first, last = contents.first_offset, contents.last_offset
            is_missing = not any(low <= last and first <= high for low, high in ranges)
            message += f"; it has {offsets_words(first, last)}"
            if is_missing and log.is_kept:
                message += ", which no other file has; a broker deletes it on its next start, `kseg retain --unmark` restores it"
            elif is_missing:
                message += ", which no other file has; the quarantine keeps them"
        yield Finding(
            log.cause,
            working_image.path(log.name),
            message,
            0,
            contents.size_bytes,
            contents.first_offset,
            contents.last_offset,
            {"batches": contents.batches, "only_copy": is_missing},
        )


def _range(logs: list[FileName], contents: dict[str, Contents]) -> tuple[int, int]:
    """From the smallest base offset to the offset after the last one; at least the offset of the name if no batch is valid."""
    bases = [name.base_offset or 0 for name in logs]
    last_offsets = (contents[name.name].last_offset for name in logs)
    return min(bases), max((*bases, *(last for last in last_offsets if last is not None))) + 1
