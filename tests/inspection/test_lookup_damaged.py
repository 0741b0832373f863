"""Lookups with damaged indexes or logs give the same answers, and a finding about the damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import diseases, healthy, side_diseases
from tests.support.run_commands import ask
from tests.support.trees import unchanged

INDEX_DISEASES: dict[str, Callable[[Path], object]] = {
    "missing": side_diseases.missing,
    "beside its batch": side_diseases.index_wrong_entry,
    "last beside its batch": lambda index: side_diseases.index_wrong_entry(index, _slots(index, 8) - 1, 61),
    "beyond the log": side_diseases.index_entry_beyond_log,
    "zero tail": side_diseases.index_zero_tail,
    "unsorted": side_diseases.index_unsorted,
    "bad size": side_diseases.index_bad_size,
    "all zeros": lambda index: index.write_bytes(bytes(80)),
    "rubbish": lambda index: index.write_bytes(b"\xff\x7f\x03" * 200),
    "empty": lambda index: index.write_bytes(b""),
    "of another segment": lambda index: index.write_bytes(max(index.parent.glob("*.index")).read_bytes()),
    "shifted": lambda index: index.write_bytes(index.read_bytes()[8:] + index.read_bytes()[:8]),
}
TIME_DISEASES: dict[str, Callable[[Path], object]] = {
    "missing": side_diseases.missing,
    "wrong": side_diseases.time_index_wrong_entry,
    "last wrong": lambda index: side_diseases.time_index_wrong_entry(index, _slots(index, 12) - 1),
    "last far too late": lambda index: side_diseases.time_index_wrong_entry(index, _slots(index, 12) - 1, 10**9),
    "last far too early": lambda index: side_diseases.time_index_wrong_entry(index, _slots(index, 12) - 1, -(10**9)),
    "zero tail": side_diseases.index_zero_tail,
    "unsorted": side_diseases.index_unsorted,
    "bad size": side_diseases.index_bad_size,
    "all zeros": lambda index: index.write_bytes(bytes(120)),
    "rubbish": lambda index: index.write_bytes(b"\xff\x7f\x03" * 200),
    "empty": lambda index: index.write_bytes(b""),
    "last entries lost": lambda index: index.write_bytes(index.read_bytes()[:12]),
}  # fmt: skip


def _slots(index: Path, size: int) -> int:
    return index.stat().st_size // size


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return healthy.partition(tmp_path_factory.mktemp("whole") / "metro-0")


def known_offsets(log: Path) -> list[int]:
    end = max(int(file.stem) for file in log.glob("*.snapshot"))
    return list(range(0, end, 3))


def known_times() -> list[int]:
    times = {
        new.max_timestamp_ms if new.log_append_time else record.timestamp_ms
        for new in healthy.batches()
        for record in new.records
    }
    return sorted(time + by for time in times if time is not None for by in (0, 1))


def by_offset(log: Path, offset: int) -> tuple[object, ...]:
    row = ask(log, "offset", offset=offset).rows[0]
    return row["found"], row["offset"], Path(row["segment"]).name if row["segment"] else None, row["position"]


def by_time(log: Path, time: int) -> tuple[object, ...]:
    row = ask(log, "timestamp", timestamp_ms=time).rows[0]
    return row["found"], row["offset"], row["timestamp"]


class TestDamagedIndexes:
    @pytest.mark.slow
    @pytest.mark.parametrize("disease", INDEX_DISEASES)
    @pytest.mark.parametrize("which", [0, 1, -1])
    def test_damaged_offset_index_never_changes_a_lookup(
        self, disease: str, which: int, whole: Path, tmp_path: Path
    ) -> None:
        log = diseases.copy_of(whole, tmp_path / "metro-0")
        INDEX_DISEASES[disease](sorted(log.glob("*.index"))[which])
        with unchanged(log):
            for offset in known_offsets(whole):
                assert by_offset(log, offset) == by_offset(whole, offset)
            for kind in ("latest", "max-timestamp"):
                assert ask(log, kind).rows[0]["offset"] == ask(whole, kind).rows[0]["offset"]

    @pytest.mark.slow
    @pytest.mark.parametrize("disease", TIME_DISEASES)
    @pytest.mark.parametrize("which", [0, 1, -1])
    def test_damaged_time_index_never_changes_a_lookup(
        self, disease: str, which: int, whole: Path, tmp_path: Path
    ) -> None:
        log = diseases.copy_of(whole, tmp_path / "metro-0")
        TIME_DISEASES[disease](sorted(log.glob("*.timeindex"))[which])
        with unchanged(log):
            for time in known_times()[::3]:
                assert by_time(log, time) == by_time(whole, time), time
            assert (
                ask(log, "max-timestamp").rows[0]["offset"] == ask(whole, "max-timestamp").rows[0]["offset"]
            )

    def test_index_not_used_finding_says_what_is_wrong(self, whole: Path, tmp_path: Path) -> None:
        log = diseases.copy_of(whole, tmp_path / "metro-0")
        index = min(log.glob("*.index"))
        side_diseases.index_wrong_entry(index, _slots(index, 8) - 1, 5)
        result = ask(
            log,
            "latest" if len(list(log.glob("*.log"))) == 1 else "offset",
            offset=int(sorted(log.glob("*.log"))[1].stem) - 1,
        )
        (finding,) = result.findings
        assert (finding.id, Path(finding.path).name) == ("index-not-used", index.name)
        assert "no valid batch starts at position" in finding.message

    @pytest.mark.parametrize(
        "damage",
        [
            diseases.bad_crc,
            diseases.zero_block,
            diseases.bad_length_large,
            diseases.foreign_bytes,
            diseases.bad_magic,
        ],
    )
    @pytest.mark.parametrize("number", [0, 2, 7])
    def test_lookup_finds_every_intact_batch_of_a_damaged_log(
        self, damage: Callable[..., diseases.InflictedDamage], number: int, whole: Path, tmp_path: Path
    ) -> None:
        """Every intact batch is still found at its offset, with and without the index."""
        log = diseases.copy_of(whole, tmp_path / "metro-0")
        file = sorted(log.glob("*.log"))[1]
        data, spans = file.read_bytes(), diseases.batch_spans(file)
        damage(file, number)
        with unchanged(log):
            for at, (position, _) in enumerate(spans):
                if at == number:
                    continue
                offset = int.from_bytes(data[position : position + 8])
                for use_index in (True, False):
                    row = ask(log, "offset", offset=offset, use_index=use_index).rows[0]
                    assert row["batch_base_offset"] == offset, (at, use_index)
