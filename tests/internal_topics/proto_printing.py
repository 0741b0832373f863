"""Print protobuf descriptors as the text of .proto files."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto

_TYPES = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    12: "bytes",
    13: "uint32",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}


def printed(file: FileDescriptorProto) -> str:
    """The text of a file, as far as it affects the wire format."""
    lines = [
        f'syntax = "{file.syntax or "proto2"}";',
        *([f"package {file.package};"] if file.package else []),
    ]
    lines += [f'import "{each}";' for each in file.dependency]
    lines += [_enum_text(each) for each in file.enum_type]
    lines += [_message_text(each, file.syntax == "proto3") for each in file.message_type]
    for each in file.extension:
        label = "repeated " if each.label == each.LABEL_REPEATED else "optional "
        lines.append(f"extend {each.extendee} {{ {_field_text(each, label)} }}")
    return "\n".join(lines)


def _enum_text(enum: Any) -> str:
    alias = "option allow_alias = true;" if enum.options.allow_alias else ""
    return f"enum {enum.name} {{ {alias} " + " ".join(f"{v.name} = {v.number};" for v in enum.value) + " }"


def _message_text(message: Any, is_proto3: bool) -> str:
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    parts = [_enum_text(each) for each in message.enum_type]
    parts += [_message_text(each, is_proto3) for each in message.nested_type if each.name not in entries]
    for index, oneof in enumerate(message.oneof_decl):
        fields = [f for f in message.field if f.HasField("oneof_index") and f.oneof_index == index]
        if not all(f.proto3_optional for f in fields):
            parts.append(f"oneof {oneof.name} {{ " + " ".join(_field_text(f, "") for f in fields) + " }")
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            continue
        entry = entries.get(field.type_name.rpartition(".")[2])
        if entry is not None:
            key, value = entry.field
            value_type = _TYPES.get(value.type, value.type_name)
            parts.append(f"map<{_TYPES[key.type]}, {value_type}> {field.name} = {field.number};")
            continue
        label = {
            1: "" if is_proto3 and not field.proto3_optional else "optional ",
            2: "required ",
            3: "repeated ",
        }
        parts.append(_field_text(field, label[field.label]))
    parts += [f"extensions {each.start} to {each.end - 1};" for each in message.extension_range]
    return f"message {message.name} {{ " + " ".join(parts) + " }"


def _field_text(field: Any, label: str) -> str:
    packed = f" [packed = {str(field.options.packed).lower()}]" if field.options.HasField("packed") else ""
    return f"{label}{_TYPES.get(field.type, field.type_name)} {field.name} = {field.number}{packed};"
