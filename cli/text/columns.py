"""Short tables with aligned columns; if the terminal is too narrow, the least important columns are dropped."""

from collections.abc import Iterator, Sequence

from kseg.segment.values import dataclass

_GAP = "  "
_NARROWEST_NAME = 20
_WIDEST_CELL = 320  # enough for a remark with the longest topic name; only crafted values are longer


@dataclass(frozen=True, slots=True)
class TextColumn:
    """right: aligned right, for numbers. dropped: the order in which columns are dropped if space is short, 1 first; 0 is never
    dropped. The last column may have no heading: then it is a remark on some rows, and does not count towards the width."""

    head: str
    cells: Sequence[str]
    right: bool = False
    dropped: int = 0

    @property
    def width(self) -> int:
        return min(_WIDEST_CELL, max(len(self.head), *map(len, self.cells)))


def aligned(columns: Sequence[TextColumn], most_width: int | None) -> Iterator[str]:
    """The lines of the table, its heading in capitals. most_width: of a line, None for any; if it is still too narrow the first
    column is truncated."""
    kept = list(columns)
    while most_width is not None and _width(kept) > most_width:
        worst = max(kept, key=lambda column: column.dropped)
        if not worst.dropped:
            break
        kept.remove(worst)
    widths = [column.width for column in kept]
    if most_width is not None and _width(kept) > most_width:
        widths[0] = max(min(widths[0], _NARROWEST_NAME), widths[0] - (_width(kept) - most_width))
    yield _line(kept, widths, [column.head.upper() for column in kept])
    for row in range(len(kept[0].cells)):
        yield _line(kept, widths, [column.cells[row] for column in kept])


def _width(columns: Sequence[TextColumn]) -> int:
    widths = [column.width for column in columns if column.head]
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _line(columns: Sequence[TextColumn], widths: Sequence[int], cells: Sequence[str]) -> str:
    padded = [
        cell.rjust(width) if column.right else _cut(cell, width).ljust(width)
        for column, width, cell in zip(columns, widths, cells, strict=True)
    ]
    return _GAP.join(padded).rstrip()


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 1] + "…"
