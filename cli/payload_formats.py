"""How keys and values are written: the options that dump, lookup, read and export share, and the decoder made of them.

The schemas are looked for where the targets are: in their log dirs, then in the directories beside those, as a broker with several log dirs
has `_schemas-0` in one of them.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from kseg.cli.decoders import with_payloads
from kseg.cli.option_schema import PAYLOADS, Option
from kseg.cli.streams import complain
from kseg.jobs.events import Event
from kseg.segment.errors import UnreadableInput, UsageError
from kseg.segment.partition.targets import FileTarget, LogDirTarget, PartitionTarget, Target

if TYPE_CHECKING:
    from kseg.internal_topics.registry.payload_decoder import PayloadDecoder
    from kseg.internal_topics.registry.schema_store import SchemaStore

FORMATS = (
    *("bytes", "auto", "avro", "protobuf", "json-schema", "json", "string"),
    *("short", "integer", "long", "float", "double"),
)
_MAX_NEIGHBOURS = 1000


class PayloadFormats(NamedTuple):
    """--key-format, --value-format and --schemas."""

    key_format: Annotated[
        str,
        Option(
            "--key-format",
            choices=FORMATS,
            metavar="FORMAT",
            help="Decode keys: auto, avro, protobuf, json-schema, json, integer and more. avro, protobuf and json-schema: in the wire format "
            "of schema registries; auto: whichever of them a key is in; json, string, short, integer, long, float, double: without a "
            "schema; bytes: as --bytes shows them.",
            panel=PAYLOADS,
        ),
    ] = "bytes"
    value_format: Annotated[
        str,
        Option(
            "--value-format", choices=FORMATS, metavar="FORMAT", help="The same for values.", panel=PAYLOADS
        ),
    ] = "bytes"
    schemas: Annotated[
        str | None,
        Option(
            "--schemas",
            metavar="DIR",
            help="Where the schemas are. A partition directory of _schemas, or files named by id (17.avsc, 17.proto, 17.json). "
            "Default: _schemas-0 in the log dirs of PATH, or beside them.",
            panel=PAYLOADS,
        ),
    ] = None

    @property
    def is_asked(self) -> bool:
        """Whether anything is to be decoded. Raises UsageError for --schemas alone."""
        asked = (self.key_format, self.value_format) != ("bytes", "bytes")
        if self.schemas is not None and not asked:
            raise UsageError("--schemas requires --value-format or --key-format")
        return asked

    def refuse_with(self, bytes_mode: str | None) -> None:
        """Raises UsageError where --bytes asks not to show what the formats show."""
        if self.is_asked and bytes_mode in ("size", "redacted"):
            raise UsageError(f"--bytes {bytes_mode} does not go with --key-format and --value-format")


Look = Callable[[Sequence[Target], Any], tuple[object, Sequence[Event]]]


def decoding(formats: PayloadFormats, paths: Sequence[str], command: str, quiet: bool) -> "Look | None":
    """What puts the decoder into the options of a command once its targets are known (`row_decoder`); None where nothing is decoded."""
    if not formats.is_asked:
        return None

    def look(targets: Sequence[Target], options: Any) -> tuple[object, Sequence[Event]]:
        decoder = decoder_and_notice(formats, targets, paths, command, quiet)
        return replace(options, row_decoder=with_payloads(options.row_decoder, decoder)), ()

    return look


def decoder_and_notice(
    formats: PayloadFormats, targets: Sequence[Target], paths: Sequence[str], command: str, quiet: bool
) -> "PayloadDecoder":
    """The decoder, after a line on stderr for what is missing in its schemas. Raises what `payload_decoder` raises."""

    def say(sentence: str) -> None:
        if not quiet:
            complain(f"kseg {command}: {sentence}")

    return payload_decoder(formats, targets, paths, say)


def payload_decoder(
    formats: PayloadFormats, targets: Sequence[Target], paths: Sequence[str], say: Callable[[str], None]
) -> "PayloadDecoder":
    """The decoder for what the options ask. say: told what is missing in the schemas.

    Raises UsageError where there are no schemas, or no library for them, UnreadableInput.
    """
    from kseg.internal_topics.registry.payload_decoder import (
        KIND_OF_FORMAT,
        NEEDS_SCHEMAS,
        Format,
        PayloadDecoder,
        missing_library,
    )

    key, value = Format(formats.key_format), Format(formats.value_format)
    for form in (key, value):
        missing = missing_library(KIND_OF_FORMAT[form]) if form in KIND_OF_FORMAT else None
        if missing is not None:
            raise UsageError(missing)
    store = None
    if key in NEEDS_SCHEMAS or value in NEEDS_SCHEMAS:
        store, problems = _schemas(formats, targets, paths)
        for problem in problems:
            say(problem)
    return PayloadDecoder(key, value, store)


def _schemas(
    formats: PayloadFormats, targets: Sequence[Target], paths: Sequence[str]
) -> "tuple[SchemaStore, tuple[str, ...]]":
    from kseg.internal_topics.registry.schema_files import read_schemas
    from kseg.internal_topics.registry.schema_topic import SCHEMAS_DIRECTORY, read_schema_topic

    if formats.schemas is not None:
        return read_schemas(formats.schemas)
    tried: list[str] = []
    for log_dir in _places(targets):
        directory = os.path.join(log_dir, SCHEMAS_DIRECTORY)
        if not os.path.isdir(directory):
            continue
        try:
            return read_schema_topic(directory)
        except UnreadableInput as error:
            tried.append(str(error))
    why = f" ({tried[0]})" if tried else ""
    raise UsageError(
        f"no _schemas topic is in or beside the log dirs of {', '.join(paths)}{why}; --schemas DIR names one, or a "
        "folder of files such as 17.avsc"
    )


def _places(targets: Sequence[Target]) -> Iterator[str]:
    """The log dirs of the targets, then the directories beside them, each once."""
    own = list(dict.fromkeys(map(_log_dir_of, targets)))
    yield from own
    seen = {os.path.realpath(path) for path in own}
    for parent in dict.fromkeys(os.path.dirname(os.path.abspath(path)) for path in own):
        try:
            names = sorted(os.listdir(parent))[:_MAX_NEIGHBOURS]
        except OSError:
            continue
        for name in names:
            path = os.path.join(parent, name)
            if os.path.realpath(path) not in seen:
                yield path


def _log_dir_of(target: Target) -> str:
    match target:
        case LogDirTarget():
            return target.path
        case PartitionTarget():
            return target.log_dir or os.path.dirname(os.path.abspath(target.path))
        case FileTarget():
            return os.path.dirname(os.path.dirname(os.path.abspath(target.path)))
