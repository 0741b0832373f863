"""Options for the format of keys and values, shared by dump, lookup, read and export, and the decoder that they select."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from kseg.cli.decoders import with_payloads
from kseg.cli.option_schema import PAYLOADS, Option
from kseg.cli.options import directory_option
from kseg.cli.streams import complain
from kseg.jobs.events import Event
from kseg.segment.errors import UsageError
from kseg.segment.partition.targets import Target

if TYPE_CHECKING:
    from kseg.internal_topics.registry.payload_decoder import PayloadDecoder

FORMATS = (
    *("bytes", "auto", "avro", "protobuf", "json-schema", "json", "string"),
    *("short", "integer", "long", "float", "double"),
)


class PayloadFormats(NamedTuple):
    """--key-format, --value-format and --schemas."""

    key_format: Annotated[
        str,
        Option(
            choices=FORMATS,
            metavar="FORMAT",
            help=(
                "Decode keys: auto, avro, protobuf, json-schema, json, integer and more. avro, protobuf "
                "and json-schema: in the wire format of schema registries; auto: whichever of them a "
                "key is in; json, string, short, integer, long, float, double: without a schema; bytes: "
                "as --bytes shows them."
            ),
            panel=PAYLOADS,
        ),
    ] = "bytes"
    value_format: Annotated[
        str,
        Option(choices=FORMATS, metavar="FORMAT", help="Decode values, in the same formats.", panel=PAYLOADS),
    ] = "bytes"
    schemas: Annotated[
        str | None,
        directory_option(
            "The directory with the schemas. A partition directory of _schemas, or files named by id (17.avsc, 17.proto, 17.json). "
            "Default: _schemas-0 in the log dirs of PATH, or beside them.",
            PAYLOADS,
            read=str,
        ),
    ] = None

    @property
    def is_asked(self) -> bool:
        """Whether anything is decoded. Raises UsageError for --schemas alone."""
        asked = (self.key_format, self.value_format) != ("bytes", "bytes")
        if self.schemas is not None and not asked:
            raise UsageError("--schemas requires --value-format or --key-format")
        return asked

    def refuse_with(self, bytes_mode: str | None) -> None:
        """Raises UsageError if --bytes excludes what the formats decode."""
        if self.is_asked and bytes_mode in ("size", "redacted"):
            raise UsageError(f"--bytes {bytes_mode} cannot be combined with --key-format and --value-format")


Look = Callable[[Sequence[Target], Any], tuple[object, Sequence[Event]]]


def decoding(formats: PayloadFormats, paths: Sequence[str], command: str, quiet: bool) -> "Look | None":
    """A `look` function (`run.over_targets`) that adds the decoder to the options of a command once its targets are known; None if
    nothing is decoded."""
    if not formats.is_asked:
        return None

    def look(targets: Sequence[Target], options: Any) -> tuple[object, Sequence[Event]]:
        decoder = decoder_and_notice(formats, targets, paths, command, quiet)
        return replace(options, row_decoder=with_payloads(options.row_decoder, decoder)), ()

    return look


def decoder_and_notice(
    formats: PayloadFormats, targets: Sequence[Target], paths: Sequence[str], command: str, quiet: bool
) -> "PayloadDecoder":
    """The decoder; prints a line on stderr about missing schemas. Raises what `DecoderChoice.decoder` raises."""
    from kseg.internal_topics.registry.decoder_choice import DecoderChoice
    from kseg.internal_topics.registry.payload_decoder import Format

    def say(sentence: str) -> None:
        if not quiet:
            complain(f"kseg {command}: {sentence}")

    choice = DecoderChoice(
        key_format=Format(formats.key_format),
        value_format=Format(formats.value_format),
        schemas=formats.schemas,
        paths=paths,
        option="--schemas DIR",
    )
    return choice.decoder(targets, say)
