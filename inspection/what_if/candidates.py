"""The settings to try, and the Kafka properties that set them.

Without a batch size and linger, batches keep their boundaries and each one is recompressed: what a broker does for the topic's
`compression.type`. With them, adjacent batches are joined as a producer would have sent them (`rebatching`).
"""

from collections.abc import Mapping, Sequence

from kseg.segment import layout as L
from kseg.segment.codecs.codec import compress
from kseg.segment.errors import CodecError, UsageError
from kseg.segment.values import dataclass

_CODECS = {L.codec_name(codec): codec for codec in (L.NONE, L.GZIP, L.SNAPPY, L.LZ4, L.ZSTD)}


@dataclass(frozen=True, slots=True)
class TriedSetting:
    """codec: an id; None keeps the codec of each batch. level: on Kafka's scale; None is its default. batch_size, linger_ms: producer
    settings; None keeps the batches."""

    codec: int | None = None
    level: int | None = None
    batch_size: int | None = None
    linger_ms: int | None = None

    @property
    def is_rebatched(self) -> bool:
        return self.batch_size is not None or self.linger_ms is not None

    @property
    def codec_name(self) -> str | None:
        return None if self.codec is None else L.codec_name(self.codec)

    @property
    def properties(self) -> Mapping[str, str]:
        """The producer properties if batches change, else the topic properties."""
        named: dict[str, str] = {}
        if self.codec_name is not None:
            named["compression.type"] = "uncompressed" if self.codec == L.NONE and not self.is_rebatched else self.codec_name  # fmt: skip
            if self.level is not None:
                named[f"compression.{self.codec_name}.level"] = str(self.level)
        if self.batch_size is not None:
            named["batch.size"] = str(self.batch_size)
        if self.linger_ms is not None:
            named["linger.ms"] = str(self.linger_ms)
        return named


def read_candidate(text: str) -> TriedSetting:
    """`zstd`, `zstd:9`, `gzip:1`. Raises UsageError for values that Kafka does not accept."""
    name, colon, level = text.partition(":")
    codec = _CODECS.get(name)
    if codec is None:
        raise UsageError(
            f"--codec takes one of {', '.join(_CODECS)}, with a level as in zstd:9, not {text!r}"
        )
    if not colon:
        return TriedSetting(codec)
    try:
        number = int(level)
        if codec == L.NONE:
            raise CodecError("none has no levels")
        compress(codec, L.MAGIC_V2, b"", number)
    except (ValueError, CodecError) as error:
        raise UsageError(f"--codec {text} is not a level that Kafka has: {error}") from None
    return TriedSetting(codec, number)


DEFAULT_CODECS = (
    *(TriedSetting(L.NONE), TriedSetting(L.GZIP), TriedSetting(L.SNAPPY), TriedSetting(L.LZ4)),
    *(TriedSetting(L.ZSTD, 1), TriedSetting(L.ZSTD, 3), TriedSetting(L.ZSTD, 9)),
)
DEFAULT_BATCHING = ((64 << 10, 20), (256 << 10, 100))  # batch.size, linger.ms


def candidates_of(
    codecs: Sequence[TriedSetting], batching: Sequence[tuple[int | None, int | None]]
) -> tuple[TriedSetting, ...]:
    """Every setting to try: each codec on unchanged batches; each batching with today's codecs and with each requested codec,
    zstd by default. Raises UsageError for a batch size that cannot hold a record."""
    for batch_size, _ in batching:
        if batch_size is not None and batch_size <= L.BATCH_HEADER:
            raise UsageError(f"batch.size must be above {L.BATCH_HEADER} bytes")
    with_codecs = (TriedSetting(), *(codecs or (TriedSetting(L.ZSTD, 3),)))
    return (
        *(codecs or DEFAULT_CODECS),
        *(
            TriedSetting(each.codec, each.level, batch_size, linger_ms)
            for batch_size, linger_ms in batching
            for each in with_codecs
        ),
    )
