"""`--schemas DIR`: a partition directory of `_schemas` elsewhere, or a folder of files named by id (`17.avsc`, `17.proto`, `17.json`).

In a folder, references are resolved by the content of the schemas: an `import` in a .proto names a file of the folder, a named Avro
type that is not defined is searched in the other .avsc files.
"""

import os

from kseg.internal_topics.registry.schema_store import AVRO, JSON, PROTOBUF, RegisteredSchema, SchemaStore
from kseg.internal_topics.registry.schema_topic import MAX_TEXT_BYTES, SCHEMAS_DIRECTORY, read_schema_topic
from kseg.segment.errors import UnreadableInput, UsageError, cannot_read
from kseg.segment.files import read_small
from kseg.segment.layout import INT32_MAX
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.storage import places

_KIND_BY_SUFFIX = {".avsc": AVRO, ".proto": PROTOBUF, ".json": JSON}
_MAX_DEPTH = 8
_MAX_FILES = 100_000


def read_schemas(path: str) -> tuple[SchemaStore, tuple[str, ...]]:
    """The schemas at `path`, and messages about what is missing. Raises UsageError if it is neither kind, UnreadableInput."""
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
