"""Protobuf payloads: the message selected by the message indexes, in a schema with its imports.

Fields without presence are shown with their defaults, as a consumer sees them; fields with presence only if they are set. Enum values are
names, or numbers if they have none; 64-bit numbers stay numbers. Unknown fields are ignored.
"""

from collections.abc import Callable
from typing import Any

from kseg.internal_topics.registry.json_text import MAX_DEPTH
from kseg.internal_topics.registry.proto_text import file_descriptor
from kseg.internal_topics.registry.schema_store import PROTOBUF, RegisteredSchema, SchemaStore
from kseg.internal_topics.registry.well_known_protos import WELL_KNOWN_TEXTS
from kseg.internal_topics.registry.wire_format import message_indexes
from kseg.segment.errors import FormatError

MAX_FILES = 1000
_IMPORTS = ("dependency", "public_dependency", "weak_dependency", "option_dependency")
_OF_PROTOBUF = "google/protobuf/"
_MODULES_OF_PROTOBUF = (
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

    Nested messages are counted in source order: the messages that protobuf generates for map fields have no index (Confluent: Java's
    `ProtobufSchema.toMessageIndexes`). Some other clients count those too; then the path may lead to a message only in that way.
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


def extensions_of(descriptor: Any) -> list[tuple[str, Any]]:
    """The extension fields of a message (proto2, editions), with their JSON names."""
    if not descriptor.is_extendable:
        return []
    found = descriptor.file.pool.FindAllExtensions(descriptor)
    return [(f"[{field.full_name}]", field) for field in sorted(found, key=lambda each: each.number)]


class _Pool:
    """The descriptors of one schema and its imports, isolated from those of other schemas.

    A missing import is left out: most such files define only options, which do not affect the encoding. If a type is missing
    then, the pool rejects the schema.
    """

    def __init__(self, store: SchemaStore) -> None:
        from google.protobuf.descriptor_pool import DescriptorPool

        self._store = store
        self._pool = DescriptorPool()
        self._added: set[str] = set()
        self._nowhere: list[str] = []

    def file(self, schema: RegisteredSchema) -> Any:
        name = f"schema-{schema.schema_id}.proto"
        try:
            self._add(name, schema, ())
            return self._pool.FindFileByName(name)
        except FormatError:
            raise
        except Exception as error:  # noqa: BLE001  # TypeError or KeyError, by the implementation
            where = "".join(
                f"; it imports {each}, which is not defined anywhere" for each in self._nowhere[:3]
            )
            raise FormatError(f"its schema cannot be used: {error}{where}") from None

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
        found = [each for each in file.dependency if self._import(each, schema, (*around, name))]
        public = {file.dependency[at] for at in file.public_dependency if at < len(file.dependency)}
        for each in _IMPORTS:
            if each in file.DESCRIPTOR.fields_by_name:  # option_dependency only exists since protobuf 6.31
                file.ClearField(each)
        file.dependency.extend(dict.fromkeys(found))
        file.public_dependency.extend(at for at, each in enumerate(file.dependency) if each in public)
        self._pool.Add(file)
        self._added.add(name)

    def _import(self, name: str, by: RegisteredSchema, around: tuple[str, ...]) -> bool:
        """Add an imported file; returns whether it was found."""
        reference = next((each for each in by.references if each.name == name), None)
        if reference is not None:
            self._add(name, self._store.referenced(reference, by), around)
        elif name in self._store.files:
            self._add_text(name, self._store.files[name], by, around)
        elif name in WELL_KNOWN_TEXTS:
            self._add_text(name, WELL_KNOWN_TEXTS[name], by, around)
        elif not self._add_of_protobuf(name):
            self._nowhere.append(name)
            return False
        return True

    def _add_text(self, name: str, text: str, by: RegisteredSchema, around: tuple[str, ...]) -> None:
        self._add(name, RegisteredSchema(schema_id=by.schema_id, kind=PROTOBUF, text=text), around)

    def _add_of_protobuf(self, name: str) -> bool:
        """Add a file that comes with protobuf; returns whether it is one."""
        import importlib

        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        stem = name.removeprefix(_OF_PROTOBUF).removesuffix(".proto")
        if not name.startswith(_OF_PROTOBUF) or stem not in _MODULES_OF_PROTOBUF:
            return False
        if name not in self._added:
            module = importlib.import_module(f"google.protobuf.{stem}_pb2")
            file = FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            for each in file.dependency:
                self._add_of_protobuf(each)
            self._pool.Add(file)
            self._added.add(name)
        return True


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
        extended = []
        for field in descriptor.fields:
            convert = self._field(field)
            (present if field.has_presence else always).append((field.name, convert))
        for name, field in extensions_of(descriptor):
            extended.append((name, field, self._field(field)))

        def as_python(message: Any) -> dict[str, Any]:
            values = {name: convert(getattr(message, name)) for name, convert in always}
            for name, convert in present:
                if message.HasField(name):
                    values[name] = convert(getattr(message, name))
            for name, field, convert in extended:
                if not field.has_presence or message.HasExtension(field):
                    values[name] = convert(message.Extensions[field])
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
            # reversed, so that the first of several aliases for a number wins
            names = {value.number: value.name for value in reversed(field.enum_type.values)}
            return lambda number: names.get(number, number)
        return _same


def _map_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _same(value: Any) -> Any:
    return value
