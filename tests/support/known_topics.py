"""Log dirs whose metadata log contains their topics, and the findings about them."""

from __future__ import annotations

from pathlib import Path

from kseg.internal_topics.metadata.metadata_log import read_metadata_log
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.internal_topics.metadata_logs import T0

LOG = "__cluster_metadata-0"
FILE = "partition.metadata"


def ids(data: Path) -> dict[str, str]:
    return dict(read_metadata_log(str(data / LOG)).id_by_name)


def set_id(partition: Path, value: str) -> None:
    (partition / FILE).write_text(f"version: 0\ntopic_id: {value}")


def append(data: Path, *made: bytes, leader_epoch: int = 2) -> None:
    """Append records to the metadata log with the last leader epoch, which is 2 in the capture."""
    end = read_metadata_log(str(data / LOG)).end_offset
    records = tuple(Record(end + at, T0, None, value) for at, value in enumerate(made))
    with (data / LOG / f"{0:020}.log").open("ab") as log:
        log.write(encode_batch(NewBatch(records=records, leader_epoch=leader_epoch)))
