"""For a log dir without meta.properties, only as many metadata logs are read as are needed to determine its node."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.internal_topics.metadata import metadata_finder
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from tests.internal_topics import metadata_logs as made
from tests.internal_topics.coordinator_logs import batch, write_segment


def _disks(root: Path) -> Path:
    """The disks of three brokers, each with a metadata log of the same cluster, and a disk that has lost its meta.properties."""
    topic_id = made.topic_id(5)
    registered = made.record(
        "RegisterBrokerRecord", brokerId=made.NODE, logDirs=[made.DIRECTORY], fenced=False
    )
    for number, node in enumerate((7, made.NODE, 8)):
        log = root / f"disk{number}" / "__cluster_metadata-0"
        more = [made.config("fares", "retention.ms", "5")] * (number == 2)
        made.write_log(log, [registered], made.topic("fares", topic_id, 1), *([more] if more else []))
        made.write_meta_properties(log.parent, node, directory=made.topic_id(20 + number))
    write_segment(root / "lost" / "fares-0", batch(0, (None, b"v")))
    (root / "lost" / "fares-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    return root / "lost"


def _read_by(
    finder: MetadataFinder, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str | None, list[str]]:
    read: list[str] = []
    plain = metadata_finder._read

    def noted(path: str) -> object:
        read.append(Path(path).parent.name)
        return plain(path)

    monkeypatch.setattr(metadata_finder, "_read", noted)
    image = finder.image_for(str(log_dir))
    return None if image is None else Path(image.path).parent.name, read


def test_one_metadata_log_of_the_cluster_identifies_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, read = _read_by(MetadataFinder(), _disks(tmp_path), monkeypatch)
    assert found == "disk1"
    # the longest, and that of the node that it names
    assert read == ["disk2", "disk1"]


def test_no_metadata_log_is_read_without_a_topic_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = _disks(tmp_path)
    (lost / "fares-0" / "partition.metadata").unlink()
    assert _read_by(MetadataFinder(), lost, monkeypatch) == (None, [])


def test_copied_metadata_log_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = _disks(tmp_path)
    shutil.copytree(tmp_path / "disk1", tmp_path / "copy")
    found, read = _read_by(MetadataFinder(), lost, monkeypatch)
    assert found in ("copy", "disk1")
    assert len(read) == 2


def _copies(root: Path) -> Path:
    """Copies at three different times of a broker's two disks. The metadata log is on the first disk, and grows from copy to copy."""
    for number in range(3):
        disks = root / f"copy-{number}"
        more = [[made.config("fares", "retention.ms", str(each))] for each in range(number)]
        made.write_log(disks / "d1" / "__cluster_metadata-0", made.topic("fares", made.topic_id(5), 1), *more)
        for disk in (1, 2):
            (disks / f"d{disk}").mkdir(exist_ok=True)
            made.write_meta_properties(disks / f"d{disk}", made.NODE, directory=made.topic_id(20 + disk))
    return root


@pytest.mark.parametrize("is_given", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_copy_of_a_broker_uses_its_own_metadata_log(tmp_path: Path, number: int, is_given: bool) -> None:
    """The longer metadata log of a later copy beside it is not used, even if all copies are given."""
    root = _copies(tmp_path)
    given = [str(root / f"copy-{each}" / disk) for each in (2, 1, 0) for disk in ("d1", "d2")]
    finder = MetadataFinder(given if is_given else ())
    image = finder.image_for(str(root / f"copy-{number}" / "d2"))
    assert image is not None
    assert Path(image.path) == root / f"copy-{number}" / "d1" / "__cluster_metadata-0"


def test_later_copy_is_used_if_there_is_no_other(tmp_path: Path) -> None:
    root = _copies(tmp_path)
    shutil.rmtree(root / "copy-1" / "d1")
    image = MetadataFinder().image_for(str(root / "copy-1" / "d2"))
    assert image is not None and Path(image.path).parent.parent == root / "copy-2"


def test_other_disks_of_a_node_are_not_those_of_its_copies(tmp_path: Path) -> None:
    root = _copies(tmp_path)
    assert MetadataFinder().others_of(str(root / "copy-1" / "d1")) == [str(root / "copy-1" / "d2")]


def test_linked_log_dir_has_the_siblings_of_both_places(tmp_path: Path) -> None:
    root = _copies(tmp_path / "disks")
    link = tmp_path / "mounted" / "kafka"
    link.parent.mkdir()
    link.symlink_to(root / "copy-1" / "d2")
    image = MetadataFinder().image_for(str(link))
    assert image is not None
    assert Path(image.path) == root / "copy-1" / "d1" / "__cluster_metadata-0"
