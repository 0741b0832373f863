"""How fast payloads are decoded: `python -m bench.payloads [RECORDS]`.

One partition each of Avro, protobuf and JSON Schema records with five fields in the wire format of a registry, one process each. The rate
of `dump --json` without decoding is shown for comparison; payload formats must not change it.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import fastavro

from kseg.internal_topics.registry.protobuf_decoder import ProtobufDecoder
from kseg.internal_topics.registry.schema_store import RegisteredSchema, SchemaStore
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "count", "type": ["null", "int"]},
        {"name": "paid", "type": "boolean"},
    ],
}
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; string customer = 2; double price = 3; int32 count = 4; bool paid = 5; }'
SCHEMAS = {1: (".avsc", json.dumps(AVRO)), 2: (".proto", PROTO), 3: (".json", '{"type":"object"}')}
PER_BATCH = 500


def main(count: int) -> None:
    """Print a rate for each format and each way to use it."""
    with tempfile.TemporaryDirectory(prefix="kseg-payloads-") as place:
        folder = Path(place)
        schemas = folder / "schemas"
        schemas.mkdir()
        for schema_id, (suffix, text) in SCHEMAS.items():
            (schemas / f"{schema_id}{suffix}").write_text(text)
        print(
            f"{count:,} records of five fields, one process; records (MiB of log) per second of processor time"
        )
        for name, schema_id, payload in (
            ("avro", 1, _avro_payload),
            ("protobuf", 2, _protobuf_payload()),
            ("json-schema", 3, _json_payload),
        ):
            log = _write(folder / f"{name}-0", count, b"\0" + schema_id.to_bytes(4, "big"), payload)
            decode = ["--value-format", name, "--schemas", str(schemas)]
            shown = ["dump", "--json", "--print-data-log", "--jobs", "1", str(log)]
            out = ["--output", str(folder / f"out-{name}"), "--jobs", "1", str(log.parent)]
            _measured(f"dump --json, as bytes ({name})", log, count, shown)
            _measured(f"dump --json --value-format {name}", log, count, [*shown, *decode])
            _measured(
                f"export --to parquet --value-format {name}",
                log,
                count,
                ["export", "--to", "parquet", *decode, *out],
            )


def _measured(name: str, log: Path, count: int, words: list[str]) -> None:
    start = sum(os.times()[2:4])
    subprocess.run(
        [sys.executable, "-m", "kseg", *words], check=True, stdout=subprocess.DEVNULL, env=os.environ
    )
    seconds = sum(os.times()[2:4]) - start
    rate = log.stat().st_size / seconds / (1 << 20)
    print(f"{name:48} {count / seconds:12,.0f}  ({rate:,.0f})", flush=True)


def _write(directory: Path, count: int, head: bytes, payload: Callable[[int], bytes]) -> Path:
    directory.mkdir()
    log = directory / "00000000000000000000.log"
    with log.open("wb") as file:
        for batch in _batches(count, head, payload):
            file.write(batch)
    return log


def _batches(count: int, head: bytes, payload: Callable[[int], bytes]) -> Iterator[bytes]:
    for first in range(0, count, PER_BATCH):
        offsets = range(first, min(count, first + PER_BATCH))
        records = tuple(Record(at, 1_700_000_000_000 + at, None, head + payload(at)) for at in offsets)
        yield encode_batch(NewBatch(records=records))


def _order(at: int) -> dict[str, object]:
    return {
        "id": at,
        "customer": f"customer-{at % 1000}",
        "price": at / 8,
        "count": at % 7 or None,
        "paid": not at % 2,
    }


# the default value parses the schema once for all calls
def _avro_payload(at: int, schema: object = fastavro.parse_schema(json.loads(json.dumps(AVRO)))) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, _order(at))
    return out.getvalue()


def _protobuf_payload() -> Callable[[int], bytes]:
    from google.protobuf.message_factory import GetMessageClass

    registered = RegisteredSchema(schema_id=2, kind="PROTOBUF", text=PROTO)
    file = ProtobufDecoder(registered, SchemaStore("", [registered])).file
    kind = GetMessageClass(file.message_types_by_name["Order"])

    def payload(at: int) -> bytes:
        return b"\0" + bytes(kind(**_order(at)).SerializeToString())

    return payload


def _json_payload(at: int) -> bytes:
    return json.dumps(_order(at)).encode()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
