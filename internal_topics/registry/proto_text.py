"""Convert the text of a .proto file to a `FileDescriptorProto`, without protoc.

proto-schema-parser parses the text; whatever affects the wire format is written into the descriptor. Type names are copied
unresolved: protobuf's pool resolves them in their scope, as protoc does. Options other than `packed`, `allow_alias`,
`message_set_wire_format` and the features that change the encoding do not affect the bytes and are left out, as are services.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any

from kseg.segment.errors import FormatError

MAX_PROTO_CHARACTERS = 1024 * 1024
_MAX_FIELD_NUMBER = 536_870_911
_SCALARS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
_GROUP, _MESSAGE = 10, 11
_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3
# Syntax of editions that the parser does not support and that does not affect the encoding: `reserved a, b;`; in 2024, visibility
# (`export message M {`, `local enum E {`), and imports for options only (`import option "a.proto";`)
_NOT_PARSED = (
    (re.compile(r"\breserved\s+[A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*\s*;"), ";"),
    (re.compile(r"\b(?:export|local)(?=\s+(?:message|enum)\s+[A-Za-z_]\w*\s*\{)"), ""),
    (re.compile(r"\bimport\s+option(?=\s*[\"'])"), "import"),
)
_MAY_BE_NO_DECIMAL = re.compile(r"\b0[xX0-9]")


def file_descriptor(name: str, text: str) -> Any:
    """The descriptor of a .proto file. name: how others import it. Raises FormatError if the text is not a .proto file."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if len(text) > MAX_PROTO_CHARACTERS:
        raise FormatError(f"its schema has {len(text)} characters")
    serialized = _serialized(text)
    if serialized is not None:
        serialized.name = name
        return serialized
    parsed = _parsed(text)
    file = FileDescriptorProto(name=name)
    if parsed.edition:
        file.syntax = "editions"
        try:
            file.edition = f"EDITION_{parsed.edition}"
        except ValueError:
            raise FormatError(f"its schema is of edition {parsed.edition}, which is not known") from None
    elif parsed.syntax and parsed.syntax != "proto2":
        file.syntax = parsed.syntax
    try:
        _File(file, is_proto3=parsed.syntax == "proto3").fill(parsed.file_elements)
    except (ValueError, TypeError, AttributeError) as error:
        # numbers out of range, or incomplete elements of a damaged text
        raise FormatError(f"its schema is not a .proto that can be used: {error}") from None
    return file


def _serialized(text: str) -> Any:
    """Decode a serialized descriptor in base64, which some clients register and registries return as well."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _parsed(text: str) -> Any:
    from antlr4.error.ErrorListener import ErrorListener
    from proto_schema_parser.parser import Parser

    class Strict(ErrorListener):  # type: ignore[misc]  # antlr4 has no types
        """The default prints errors and continues with a guess."""

        def syntaxError(
            self, recognizer: Any, offending: Any, line: int, column: int, message: str, error: Any
        ) -> None:
            raise FormatError(f"its schema is not a .proto: line {line}, column {column}")

    def strictly(recognizer: Any) -> None:
        recognizer.removeErrorListeners()
        recognizer.addErrorListener(Strict())

    try:
        plain = text
        for pattern, instead in _NOT_PARSED:
            plain = pattern.sub(instead, plain)
        if _MAY_BE_NO_DECIMAL.search(plain):
            plain = _with_decimals(plain)
        return Parser(setup_lexer=strictly, setup_parser=strictly).parse(plain)
    except FormatError:
        raise
    except RecursionError:
        raise FormatError("its schema is nested too deeply") from None
    except Exception as error:  # noqa: BLE001  # the parser's visitor trips over what its grammar lets through
        raise FormatError(f"its schema is not a .proto: {error}") from None


def _with_decimals(text: str) -> str:
    """The same text with hexadecimal and octal numbers written as decimal ones, the only form that the parser accepts."""
    from antlr4 import InputStream
    from proto_schema_parser.antlr.ProtobufLexer import ProtobufLexer

    lexer = ProtobufLexer(InputStream(text))
    lexer.removeErrorListeners()
    parts, position = [], 0
    for token in lexer.getAllTokens():
        if token.type == ProtobufLexer.INT_LITERAL and _MAY_BE_NO_DECIMAL.match(token.text):
            digits = token.text
            number = int(digits, 16 if digits[1] in "xX" else 8)
            parts += [text[position : token.start], str(number)]
            position = token.stop + 1
    return "".join([*parts, text[position:]])


class _File:
    def __init__(self, file: Any, is_proto3: bool) -> None:
        from proto_schema_parser import ast

        self._file = file
        self._is_proto3 = is_proto3
        self._ast = ast

    def fill(self, elements: Iterable[Any]) -> None:
        ast = self._ast
        for element in elements:
            match element:
                case ast.Package():
                    self._file.package = element.name
                case ast.Import():
                    self._file.dependency.append(element.name)
                    if element.public:
                        self._file.public_dependency.append(len(self._file.dependency) - 1)
                case ast.Message():
                    self._message(self._file.message_type.add(), element)
                case ast.Enum():
                    self._enum(self._file.enum_type.add(), element)
                case ast.Extension():
                    self._extend(self._file, self._file.message_type, element)
                case ast.Option(name=name) if name.startswith("features."):
                    _feature(self._file.options.features, element)

    def _message(self, message: Any, parsed: Any) -> None:
        message.name = parsed.name
        self._elements(message, parsed.elements)
        # synthetic oneofs (of proto3 optional fields) come after the declared ones
        taken = {each.name for each in (*message.field, *message.oneof_decl)}
        for field in message.field:
            # JSON names must be unique, but foo_bar and fooBar would have the same one; no field name is a number
            field.json_name = str(field.number)
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                name = f"_{field.name}"
                while name in taken:
                    name = f"X{name}"
                taken.add(name)
                message.oneof_decl.add(name=name)

    def _elements(self, message: Any, elements: Iterable[Any]) -> None:
        ast = self._ast
        for element in elements:
            match element:
                case ast.Field():
                    self._field(message.field.add(), element)
                case ast.MapField():
                    self._map(message, element)
                case ast.Group():
                    self._group(message.field.add(), message.nested_type, element)
                case ast.OneOf():
                    index = len(message.oneof_decl)
                    message.oneof_decl.add(name=element.name)
                    for inner in element.elements:
                        if isinstance(inner, (ast.Field, ast.Group)):
                            field = message.field.add()
                            if isinstance(inner, ast.Group):
                                self._group(field, message.nested_type, inner)
                            else:
                                self._field(field, inner, is_in_oneof=True)
                            field.oneof_index = index
                case ast.Message():
                    self._message(message.nested_type.add(), element)
                case ast.Enum():
                    self._enum(message.enum_type.add(), element)
                case ast.Extension():
                    self._extend(message, message.nested_type, element)
                case ast.ExtensionRange():
                    for text in element.ranges:
                        first, last = _range(text)
                        message.extension_range.add(start=first, end=last + 1)
                case ast.Option(name="message_set_wire_format"):
                    message.options.message_set_wire_format = bool(element.value)

    def _field(self, field: Any, parsed: Any, *, is_in_oneof: bool = False) -> None:
        field.name, field.number = parsed.name, parsed.number
        self._type(field, parsed.type)
        cardinality = parsed.cardinality
        field.label = (
            _OPTIONAL if cardinality is None else {"REQUIRED": 2, "REPEATED": 3}.get(cardinality.value, 1)
        )
        if self._is_proto3 and cardinality is not None and field.label == _OPTIONAL and not is_in_oneof:
            field.proto3_optional = True
        for option in parsed.options:
            if option.name == "packed":
                field.options.packed = option.value is True
            elif option.name.startswith("features."):
                _feature(field.options.features, option)

    def _type(self, field: Any, name: str) -> None:
        if name in _SCALARS:
            field.type = _SCALARS[name]
        else:
            field.type_name = name

    def _map(self, message: Any, parsed: Any) -> None:
        words = parsed.name.split("_")
        entry = message.nested_type.add(name="".join(word[:1].upper() + word[1:] for word in words) + "Entry")
        entry.options.map_entry = True
        self._type(entry.field.add(name="key", number=1, label=_OPTIONAL), parsed.key_type)
        self._type(entry.field.add(name="value", number=2, label=_OPTIONAL), parsed.value_type)
        message.field.add(
            name=parsed.name, number=parsed.number, label=_REPEATED, type=_MESSAGE, type_name=entry.name
        )

    def _group(self, field: Any, around: Any, parsed: Any) -> None:
        self._message(around.add(), self._ast.Message(parsed.name, parsed.elements))
        field.name, field.number = parsed.name.lower(), parsed.number
        field.type, field.type_name = _GROUP, parsed.name
        cardinality = "OPTIONAL" if parsed.cardinality is None else parsed.cardinality.value
        field.label = {"REQUIRED": _REQUIRED, "REPEATED": _REPEATED}.get(cardinality, _OPTIONAL)

    def _extend(self, scope: Any, around: Any, parsed: Any) -> None:
        for element in parsed.elements:
            if isinstance(element, (self._ast.Field, self._ast.Group)):
                field = scope.extension.add(extendee=parsed.typeName)
                if isinstance(element, self._ast.Group):
                    self._group(field, around, element)
                else:
                    self._field(field, element)

    def _enum(self, enum: Any, parsed: Any) -> None:
        enum.name = parsed.name
        for element in parsed.elements:
            match element:
                case self._ast.EnumValue():
                    enum.value.add(name=element.name, number=element.number)
                case self._ast.Option(name="allow_alias"):
                    enum.options.allow_alias = element.value is True
                case self._ast.Option(name=name) if name.startswith("features."):
                    _feature(enum.options.features, element)


def _feature(features: Any, option: Any) -> None:
    """An edition's feature by name, such as features.field_presence = IMPLICIT."""
    name = option.name.removeprefix("features.")
    field = features.DESCRIPTOR.fields_by_name.get(name)
    value = getattr(option.value, "name", option.value)
    if field is not None and field.enum_type is not None and value in field.enum_type.values_by_name:
        setattr(features, name, field.enum_type.values_by_name[value].number)


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition(" to ")
    return int(first), _MAX_FIELD_NUMBER if last == "max" else int(last or first)
