"""The data behind the charts of a report, collected from rows and findings as they are emitted.

    segments      of each partition on an offset and on a time axis, with damage (the errors about bytes of its logs) and leader epochs
    topics        bytes of each topic and its partitions
    batches       by codec: the sizes of batches, and what compression saves (of the sampled batches)
    pairs         the two copies of each partition that differ, on one offset axis
    limits        what retention would free at each limit, and compaction at each dirty ratio

The browser draws them (`assets/pictures.js`). The amount of data does not grow with the data directory: if there are many segments,
adjacent ones are merged.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from kseg.cli.html.html_limits import LimitsData, SegmentMark
from kseg.inspection.copies.compare_copies import VERDICTS, CopyPicture, PairPicture
from kseg.segment.findings import ERROR, Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.log_shape import CodecShape, LogShape
from kseg.segment.partition.names import PartitionState
from kseg.segment.storage import places
from kseg.segment.values import dataclass

Values = Mapping[str, object]

SEGMENTS_SHOWN = 25_000  # for all partitions together: about 1.5 MB
DAMAGE_TOLD = 200  # places per partition
_PARTITIONS_TOLD = 10_000
_TOPICS_TOLD = 2000  # of what-if
_PAIRS_TOLD = 400  # of diff


@dataclass(slots=True)
class PartitionPicture:
    """The chart data of a partition. path: of its directory. errors: the number of errors found. damage: (base offset of the segment,
    position, length, first and last offset, finding id). epochs: (epoch, first offset, time)."""

    path: str
    bytes: int = 0
    errors: int = 0
    segments: list[SegmentMark] = field(default_factory=list)
    damage: list[tuple[int | None, int, int, int | None, int | None, str]] = field(default_factory=list)
    epochs: Sequence[tuple[int, int, int | None]] = ()

    @property
    def troubles(self) -> int:
        """The number of errors reported so far."""
        return self.errors or len(self.damage)

    def as_data(self, shown: int) -> dict[str, object]:
        """shown: the largest number of segments to include."""
        return {
            "path": self.path,
            "bytes": self.bytes,
            "segments": [
                [s.base_offset, s.end_offset, s.size_bytes, s.earliest_ms, s.latest_ms, s.verdict, s.count]
                for s in _thinned(self.segments, shown, {at for at, *_ in self.damage})
            ],
            "damage": self.damage,
            "epochs": self.epochs,
        }


class PictureData:
    def __init__(self) -> None:
        self._partitions: dict[str, PartitionPicture] = {}
        self._codecs: dict[str, CodecShape] = {}
        self._limits = LimitsData()
        self._settings: dict[str, list[tuple[object, ...]]] = {}
        self._pairs: list[PairPicture] = []

    def finding(self, finding: Finding) -> None:
        """Mark an error about bytes of a log in the chart of its partition."""
        if finding.severity != ERROR:
            return
        folder, name = os.path.split(finding.path)
        picture = self._picture(folder) if name.endswith(".log") else None
        if picture is None:
            return
        if finding.position is not None and len(picture.damage) < DAMAGE_TOLD:
            stem = name.removesuffix(".log")
            base = int(stem) if stem.isascii() and stem.isdigit() else None
            picture.damage.append(
                (base, finding.position, finding.length or 0, finding.first_offset, finding.last_offset, finding.id)
            )  # fmt: skip

    def shape(self, shape: LogShape) -> None:
        picture = self._picture(shape.directory)
        if picture is None:
            return
        picture.bytes = picture.bytes or shape.log_bytes
        picture.segments = [
            SegmentMark(s.base_offset, s.end_offset, s.size_bytes, s.earliest_ms, s.latest_ms)
            for s in shape.segments
        ]
        picture.epochs = [(epoch.epoch, epoch.first_offset, epoch.at_ms) for epoch in shape.epochs]
        for name, codec in shape.codecs.items():
            self._codecs.setdefault(name, CodecShape()).add(codec)

    def pair(self, pair: PairPicture) -> None:
        if pair.verdict != "same":
            self._pairs.append(pair)

    def row(self, kind: str, row: Values) -> None:
        """Add what a row of the run says about a partition as a whole."""
        if kind == "verified" and row.get("kind") == "partition":
            self._partition(str(row["path"]), row["bytes_total"], row["errors"])
        elif kind == "partition" and "directory" in row:
            self._partition(str(row["directory"]), row["bytes"], 0)
        elif kind == "setting" and len(self._settings) < _TOPICS_TOLD:
            named = row["properties"]
            words = (
                " ".join(f"{name}={value}" for name, value in named.items())
                if isinstance(named, Mapping)
                else ""
            )
            numbers = (row["bytes"], row["bytes_least"], row["bytes_most"], row["bytes_now"])
            found = self._settings.setdefault(str(row["topic"]), [])
            found.append((row["kind"], words, *numbers, row.get("cpu_s_per_gib")))
        elif kind == "segment":
            self._limits.judged(row)
        elif kind == "result" and "log_dir" not in row and "directory" in row:
            picture = self._picture(str(row["directory"]))
            if picture is not None:
                picture.segments = self._limits.settled(row)
                picture.bytes = sum(mark.size_bytes for mark in picture.segments)

    def _partition(self, directory: str, size_bytes: object, errors: object) -> None:
        picture = self._picture(directory)
        if picture is not None and isinstance(size_bytes, int) and isinstance(errors, int):
            picture.bytes, picture.errors = size_bytes, errors

    def as_data(self) -> dict[str, object]:
        pictures = sorted(
            self._partitions.values(), key=lambda each: (-each.troubles, -each.bytes, each.path)
        )
        pictures = [each for each in pictures if each.segments or each.bytes or each.damage]
        segments = sum(len(each.segments) for each in pictures)
        shown = (
            max(8, SEGMENTS_SHOWN // max(1, len(pictures))) if segments > SEGMENTS_SHOWN else SEGMENTS_SHOWN
        )
        return {
            "partitions": [each.as_data(shown) for each in pictures],
            "topics": _topics(pictures),
            "codecs": [_codec_data(name, shape) for name, shape in sorted(self._codecs.items())],
            **self._limits.as_data(),
            **({"settings": [*self._settings.items()]} if self._settings else {}),
            **({"pairs": _pairs_data(self._pairs)} if self._pairs else {}),
        }

    def _picture(self, directory: str) -> PartitionPicture | None:
        picture = self._partitions.get(directory)
        if picture is None and len(self._partitions) < _PARTITIONS_TOLD:
            picture = self._partitions[directory] = PartitionPicture(directory)
        return picture


def _thinned(marks: Sequence[SegmentMark], most: int, kept: set[int | None]) -> Iterable[SegmentMark]:
    """At most about `most` of them: adjacent ones with the same verdict are merged, except those in `kept`."""
    if len(marks) <= most:
        return marks
    each = -(-len(marks) // most)
    shown: list[SegmentMark] = []
    for mark in marks:
        last = shown[-1] if shown else None
        is_apart = mark.base_offset in kept or last is None or last.base_offset in kept
        if last is None or is_apart or last.verdict != mark.verdict or last.count >= each:
            shown.append(mark)
        else:
            shown[-1] = last.joined(mark)
    return shown


def _topics(pictures: Sequence[PartitionPicture]) -> list[list[object]]:
    """[topic, [[partition, bytes, errors], …]], largest first."""
    topics: dict[str, list[tuple[str, int, int]]] = {}
    for picture in pictures:
        name = own_partition_name(picture.path)
        base = os.path.basename(places.abspath(picture.path))
        topic = name.topic if name is not None and name.state is PartitionState.LIVE else base
        topics.setdefault(topic, []).append((base, picture.bytes, picture.troubles))
    ordered = sorted(topics.items(), key=lambda each: -sum(size for _, size, _ in each[1]))
    return [[topic, partitions] for topic, partitions in ordered]


def _pairs_data(pairs: Sequence[PairPicture]) -> list[dict[str, object]]:
    """The most serious ones first."""
    ordered = sorted(pairs, key=lambda pair: VERDICTS.index(pair.verdict))
    return [
        {
            "name": pair.name,
            "verdict": pair.verdict,
            "differs_at": pair.differs_at,
            "copies": [None if copy is None else _copy_data(copy) for copy in (pair.a, pair.b)],
        }
        for pair in ordered[:_PAIRS_TOLD]
    ]


def _copy_data(copy: CopyPicture) -> dict[str, object]:
    return {
        "start": copy.start_offset,
        "end": copy.end_offset,
        "segments": copy.segments,
        "damaged": [[each.first, each.last] for each in copy.damaged],
        "missing": [[each.first, each.last] for each in copy.missing],
    }


def _codec_data(name: str, shape: CodecShape) -> dict[str, object]:
    return {
        "codec": name,
        "batches": shape.batches,
        "records": shape.records,
        "bytes": shape.size_bytes,
        "by_size": sorted(shape.by_size.items()),
        "sampled": shape.sampled_batches,
        "sampled_bytes": shape.sampled_bytes,
        "content_bytes": shape.content_bytes,
    }
