"""Choose the decoder for the requested formats, and find the schemas it needs.

The schemas are searched for near the targets: in their log dirs, then in the directories beside those, since a broker with several log dirs
has `_schemas-0` in one of them.
"""

import os
from collections.abc import Callable, Iterator, Sequence

from kseg.internal_topics.registry.payload_decoder import (
    KIND_OF_FORMAT,
    NEEDS_SCHEMAS,
    Format,
    PayloadDecoder,
    missing_library,
)
from kseg.internal_topics.registry.schema_store import AVRO, JSON, PROTOBUF, RegisteredSchema, SchemaStore
from kseg.internal_topics.registry.schema_topic import MAX_TEXT_BYTES, SCHEMAS_DIRECTORY, read_schema_topic
from kseg.segment.errors import UnreadableInput, UsageError, cannot_read
from kseg.segment.files import read_small
from kseg.segment.layout import INT32_MAX
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.partition.targets import Target, log_dir_of
from kseg.segment.storage import places
from kseg.segment.values import dataclass

_KIND_BY_SUFFIX = {".avsc": AVRO, ".proto": PROTOBUF, ".json": JSON}
_MAX_DEPTH = 8
_MAX_FILES = 100_000

_MAX_NEIGHBOURS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderChoice:
    """key_format, value_format: of `Format`. schemas: their location, None to search for them. paths: as given by the user.
    option: the option that specifies schemas, for the error message when none are found."""

    key_format: Format
    value_format: Format
    schemas: str | None
    paths: Sequence[str]
    option: str

    def decoder(self, targets: Sequence[Target], say: Callable[[str], None]) -> PayloadDecoder:
        """The decoder for the logs of some targets. say: receives messages about missing schemas.

        Raises UsageError if there are no schemas, or no library for them, UnreadableInput.
        """
        for form in (self.key_format, self.value_format):
            missing = missing_library(KIND_OF_FORMAT[form]) if form in KIND_OF_FORMAT else None
            if missing is not None:
                raise UsageError(missing)
        store = None
        if self.key_format in NEEDS_SCHEMAS or self.value_format in NEEDS_SCHEMAS:
            store, problems = self._store(targets)
            for problem in problems:
                say(problem)
        return PayloadDecoder(self.key_format, self.value_format, store)

    def _store(self, targets: Sequence[Target]) -> tuple[SchemaStore, tuple[str, ...]]:
        if self.schemas is not None:
            return read_schemas(self.schemas)
        tried: list[str] = []
        for log_dir in _places(targets):
            directory = os.path.join(log_dir, SCHEMAS_DIRECTORY)
            if not places.isdir(directory):
                continue
            try:
                return read_schema_topic(directory)
            except UnreadableInput as error:
                tried.append(str(error))
        why = f" ({tried[0]})" if tried else ""
        raise UsageError(
            f"no _schemas topic is in or beside the log dirs of {', '.join(self.paths)}{why}; {self.option} names one, or a "
            "folder of files such as 17.avsc"
        )


def _places(targets: Sequence[Target]) -> Iterator[str]:
    """The log dirs of the targets, then the directories beside them, each once."""
    own = list(dict.fromkeys(map(log_dir_of, targets)))
    yield from own
    seen = {places.realpath(path) for path in own}
    for parent in dict.fromkeys(os.path.dirname(places.abspath(path)) for path in own):
        try:
            names = sorted(places.listdir(parent))[:_MAX_NEIGHBOURS]
        except OSError:
            continue
        for name in names:
            path = os.path.join(parent, name)
            if places.realpath(path) not in seen:
                yield path


def read_schemas(path: str) -> tuple[SchemaStore, tuple[str, ...]]:
    """The schemas at `path`, and messages about what is missing. Raises UsageError if it is neither kind, UnreadableInput.

    A partition directory of `_schemas`, or a folder of files named by id (`17.avsc`, `17.proto`, `17.json`). In a folder, an `import` in a
    .proto names a file of the folder, and a named Avro type that is not defined is looked up in the other .avsc files.
    """
    inside = os.path.join(path, SCHEMAS_DIRECTORY)
    if places.isdir(inside):
        return read_schema_topic(inside)
    try:
        names = places.listdir(path)
    except OSError as error:
        raise cannot_read(path, error) from error
    if any(parse_file_name(name).role is Role.LOG for name in names):
        return read_schema_topic(path)
    return _read_folder(path), ()


def _read_folder(path: str) -> SchemaStore:
    schemas, files = [], {}
    for name in _schema_files(path):
        stem, suffix = os.path.splitext(os.path.basename(name))
        data = read_small(os.path.join(path, name), MAX_TEXT_BYTES)
        try:
            text = files[name] = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise UnreadableInput(f"{os.path.join(path, name)} is not UTF-8 text") from None
        if stem.isascii() and stem.isdigit() and len(stem) <= 10 and int(stem) <= INT32_MAX:
            schemas.append(RegisteredSchema(schema_id=int(stem), kind=_KIND_BY_SUFFIX[suffix], text=text))
    if not schemas:
        raise UsageError(
            f"{path} has no schemas: neither segments of a _schemas topic nor files such as 17.avsc, 17.proto or 17.json"
        )
    return SchemaStore(path, schemas, files)


def _schema_files(path: str, below: str = "", depth: int = 0) -> list[str]:
    """Names with a known suffix, relative to the folder and with `/`, as imports of protobuf name them."""
    try:
        with places.scandir(os.path.join(path, below)) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise cannot_read(os.path.join(path, below), error) from error
    names: list[str] = []
    for entry in found:
        name = f"{below}/{entry.name}" if below else entry.name
        if entry.is_dir(follow_symlinks=False):
            if depth < _MAX_DEPTH:
                names += _schema_files(path, name, depth + 1)
        elif os.path.splitext(entry.name)[1] in _KIND_BY_SUFFIX:
            names.append(name)
        if len(names) > _MAX_FILES:
            raise UsageError(f"{path} has more than {_MAX_FILES} files, so it is not a directory of schemas")
    return names
