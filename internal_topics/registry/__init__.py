"""Payloads in the wire format of schema registries, decoded from files alone: the schemas are in the topic `_schemas`.

fastavro, protobuf and proto-schema-parser (`pip install 'kseg[schemas]'`) are imported in this package only, and only when a
record needs them.
"""
