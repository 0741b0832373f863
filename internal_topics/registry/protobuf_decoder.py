"""Protobuf payloads: the message selected by the message indexes, in a schema with its imports.

Fields without presence are shown with their defaults, as a consumer sees them; fields with presence only if they are set. Enum values are
names, or numbers if they have none; 64-bit numbers stay numbers. Unknown fields are ignored.
"""

from collections.abc import Callable
from typing import Any

from kseg.internal_topics.registry.json_text import MAX_DEPTH
from kseg.internal_topics.registry.proto_text import file_descriptor
from kseg.internal_topics.registry.schema_store import PROTOBUF, RegisteredSchema, SchemaStore
from kseg.internal_topics.registry.wire_format import message_indexes
from kseg.segment.errors import FormatError

MAX_FILES = 1000
_WELL_KNOWN = ("google/protobuf/", "google/type/")
_WELL_KNOWN_MODULES = (
    *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context"),
    *("struct", "timestamp", "type", "wrappers"),
)

AsPython = Callable[[Any], dict[str, Any]]


class ProtobufDecoder:
    """Decodes payloads of one schema. file: its descriptor."""

    encoding = "protobuf"
    converts = True

    def __init__(self, registered: RegisteredSchema, store: SchemaStore) -> None:
        """Raises FormatError for a schema that cannot be used."""
        self.file = _Pool(store).file(registered)
        self._classes: dict[tuple[int, ...], tuple[Any, AsPython]] = {}

    def decode(self, data: bytes, indexes: bytes | None = None) -> Any:
        """The message as Python values, bytes as bytes. Raises FormatError."""
        if indexes is None:
            path, start = message_indexes(data)
            data = data[start:]
        else:
            path, _ = message_indexes(indexes or b"\0")
        known = self._classes.get(path)
        if known is None:
            known = self._classes[path] = self._class(path)
        make, as_python = known
        try:
            message = make()
            message.ParseFromString(data)
            return as_python(message)
        except Exception as error:  # noqa: BLE001  # DecodeError, or what hostile bytes lead the library to
            raise FormatError(
                f"it is not a message of type {message_name(self.file, path)}: {error}"
            ) from None

    def name(self, path: tuple[int, ...]) -> str:
        return message_name(self.file, path)

    def _class(self, path: tuple[int, ...]) -> tuple[Any, AsPython]:
        from google.protobuf.message_factory import GetMessageClass

        descriptor = message_descriptor(self.file, path)
        return GetMessageClass(descriptor), _Conversion().of(descriptor)


def message_descriptor(file: Any, path: tuple[int, ...]) -> Any:
    """The message of a file that an index path selects. Raises FormatError.

    Nested messages are counted as they are written: the messages that protobuf makes of map fields have no index (Confluent: Java's
    `ProtobufSchema.toMessageIndexes`). Some other clients count those too; then the path can lead to a message only that way.
    """
    found = _at_path(file, path, with_map_entries=False) or _at_path(file, path, with_map_entries=True)
    if found is None:
        raise FormatError(f"its schema has no message {'.'.join(map(str, path))}")
    return found


def _at_path(file: Any, path: tuple[int, ...], *, with_map_entries: bool) -> Any | None:
    place: Any = list(file.message_types_by_name.values())
    descriptor = None
    for index in path:
        if not 0 <= index < len(place):
            return None
        descriptor = place[index]
        place = [
            each for each in descriptor.nested_types if with_map_entries or not each.GetOptions().map_entry
        ]
    return descriptor


def message_name(file: Any, path: tuple[int, ...]) -> str:
    return str(message_descriptor(file, path).full_name)


class _Pool:
    """The descriptors of one schema and its imports, isolated from those of other schemas."""

    def __init__(self, store: SchemaStore) -> None:
        from google.protobuf.descriptor_pool import DescriptorPool

        self._store = store
        self._pool = DescriptorPool()
        self._added: set[str] = set()

    def file(self, schema: RegisteredSchema) -> Any:
        name = f"schema-{schema.schema_id}.proto"
        try:
            self._add(name, schema, ())
            return self._pool.FindFileByName(name)
        except FormatError:
            raise
        except Exception as error:  # noqa: BLE001  # TypeError or KeyError, by the implementation
            raise FormatError(f"its schema cannot be used: {error}") from None

    def _add(self, name: str, schema: RegisteredSchema, around: tuple[str, ...]) -> None:
        if schema.kind != PROTOBUF:
            raise FormatError(f"its schema refers to one of type {schema.kind}")
        if name in self._added:
            return
        if name in around:
            raise FormatError(f"its schema imports {name} in a cycle")
        if len(around) > MAX_DEPTH or len(self._added) > MAX_FILES:
            raise FormatError("its schema imports too many others")
        file = file_descriptor(name, schema.text)
        references = {each.name: each for each in schema.references}
        for imported in file.dependency:
            if imported in references:
                found = self._store.referenced(references[imported], schema)
            elif imported in self._store.files:
                text = self._store.files[imported]
                found = RegisteredSchema(schema_id=schema.schema_id, kind=PROTOBUF, text=text)
            else:
                self._add_well_known(imported)
                continue
            self._add(imported, found, (*around, name))
        self._pool.Add(file)
        self._added.add(name)

    def _add_well_known(self, name: str) -> None:
        """Add a file that comes with protobuf."""
        import importlib

        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        if name in self._added:
            return
        stem = name.removeprefix(_WELL_KNOWN[0]).removesuffix(".proto")
        if not name.startswith(_WELL_KNOWN[0]) or stem not in _WELL_KNOWN_MODULES:
            raise FormatError(f"its schema imports {name}, which is not defined anywhere")
        module = importlib.import_module(f"google.protobuf.{stem}_pb2")
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for each in file.dependency:
            self._add_well_known(each)
        self._pool.Add(file)
        self._added.add(name)


class _Conversion:
    """The conversion of a message to a dictionary, built once for each type."""

    def __init__(self) -> None:
        self._known: dict[str, AsPython] = {}

    def of(self, descriptor: Any) -> AsPython:
        known = self._known
        name = descriptor.full_name
        if name not in known:
            known[name] = lambda message: known[name](message)  # for a type that contains itself
            known[name] = self._made(descriptor)
        return known[name]

    def _made(self, descriptor: Any) -> AsPython:
        always: list[tuple[str, Callable[[Any], Any]]] = []
        present: list[tuple[str, Callable[[Any], Any]]] = []
        for field in descriptor.fields:
            convert = self._field(field)
            (present if field.has_presence else always).append((field.name, convert))

        def as_python(message: Any) -> dict[str, Any]:
            values = {name: convert(getattr(message, name)) for name, convert in always}
            for name, convert in present:
                if message.HasField(name):
                    values[name] = convert(getattr(message, name))
            return values

        return as_python

    def _field(self, field: Any) -> Callable[[Any], Any]:
        descriptor = field.message_type
        if descriptor is not None and descriptor.GetOptions().map_entry:
            value = self._single(descriptor.fields_by_name["value"])
            return lambda entries: {_map_key(key): value(entries[key]) for key in entries}
        single = self._single(field)
        if field.is_repeated:
            return lambda values: [single(each) for each in values]
        return single

    def _single(self, field: Any) -> Callable[[Any], Any]:
        if field.message_type is not None:
            inner, name = self._known, field.message_type.full_name
            self.of(field.message_type)
            return lambda message: inner[name](message)
        if field.enum_type is not None:
            # the first of several names for a number counts
            names = {value.number: value.name for value in reversed(field.enum_type.values)}
            return lambda number: names.get(number, number)
        return _same


def _map_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _same(value: Any) -> Any:
    return value
