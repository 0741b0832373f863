"""The race evaluates correctly. All programs are fakes with claimed times, and nothing is measured here."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest

from bench import decode_rows, producer_corpus, report, retain_rows, rust_reader, shape_rows, sparse
from bench.compact_rows import SERIES
from bench.contest import RECORDED, SECONDS, SHARE, TIMES, Limit, Result, Row, Turn, Turns, race
from bench.measure import Failed, Machine, Sample, anonymous_bytes, run, warm
from bench.rows import FEW_BATCHES, rows, rows_against
from bench.source_rows import source_rows
from bench.tools import Tools, lookup_figures, warm_sample
from bench.touch import seconds_for

MACHINE = Machine(2, 24 << 30, "a processor", "Linux 6 x86_64")


def turns(*seconds: float, **figures: float) -> Turn:
    """A contestant that claims these times, one for each turn."""
    left = iter(seconds)
    return lambda: Sample(next(left), figures)


def row(kseg: Turn, judged_by: str = TIMES, rival: Turn | None = None, **more: object) -> Row:
    return Row("name", "job", kseg, judged_by, "rival", rival, **more)  # type: ignore[arg-type]


def test_race_contestants_take_turns() -> None:
    order: list[str] = []

    def turn(name: str) -> Turn:
        def take() -> Sample:
            order.append(name)
            return Sample(1.0)

        return take

    race(row(turn("kseg"), rival=turn("rival"), prepare=lambda: order.append("prepare")), 3)
    assert order == ["prepare", *["kseg", "rival"] * 3]


def test_best_round_decides_and_the_median_is_reported() -> None:
    result = race(row(turns(2.0, 1.0, 4.0), rival=turns(12.0, 30.0, 11.0), at_least=10, aim=20), 3)
    assert result.reached() == pytest.approx(11.0)
    assert result.reached(median=True) == pytest.approx(6.0)
    assert (result.passes(), report.verdict(result)) == (True, "yes")


@pytest.mark.parametrize(("rival", "printed"), [(9.9, "NO"), (10.0, "yes"), (20.0, "aim")])
def test_ratio_is_compared_with_its_target(rival: float, printed: str) -> None:
    assert report.verdict(race(row(turns(1.0), rival=turns(rival), at_least=10, aim=20), 1)) == printed


@pytest.mark.parametrize(("own", "printed"), [(0.13, "NO"), (0.12, "yes"), (0.05, "aim")])
def test_seconds_are_compared_with_their_target(own: float, printed: str) -> None:
    assert report.verdict(race(row(turns(own), SECONDS, at_least=0.12, aim=0.08), 1)) == printed


def test_start_up_time_is_subtracted_only_from_kseg() -> None:
    result = race(row(turns(0.3), SHARE, turns(0.1), startup=turns(0.1), at_least=0.6, aim=0.7), 1)
    assert result.reached() == pytest.approx(0.5)
    assert report.cells(result)[5] == "50%"
    assert result.passes() is False


def test_row_limit_decides_as_well() -> None:
    limit = Limit("bytes_read", 2048, "KiB read", 1024)
    within = race(row(turns(0.1, bytes_read=2048), SECONDS, at_least=0.25, limit=limit), 1)
    beyond = race(row(turns(0.1, bytes_read=2049), SECONDS, at_least=0.25, limit=limit), 1)
    untold = race(row(turns(0.1), SECONDS, at_least=0.25, limit=limit), 1)
    assert [within.passes(), beyond.passes(), untold.passes()] == [True, False, False]
    assert report.cells(within)[5] == "0.100 s · 2 KiB read"


def test_recorded_row_has_no_verdict() -> None:
    result = race(row(turns(1.5), RECORDED), 1)
    assert (result.reached(), result.passes(), report.verdict(result)) == (None, None, "–")


def test_row_that_fails_misses_its_target_with_the_reason() -> None:
    def fail() -> Sample:
        raise Failed("kseg ended with 70: a bug")

    result = race(row(fail, at_least=1), 3, Failed)
    assert result.passes() is False
    assert report.line(result).endswith("not raced: kseg ended with 70: a bug")


def test_markdown_contains_every_raced_row() -> None:
    good = race(row(turns(1.0), rival=turns(25.0), at_least=10, aim=20), 1)
    bad = Result(good.row, Turns(), Turns(), Turns(), "no such file")
    text = report.markdown([good, bad], MACHINE, "2026-01-02", 3)
    assert "2026-01-02, 2 cores (a processor), 24 GiB, Linux 6 x86_64; best of 3 rounds" in text
    assert "| job | rival | 25.0 | 1.000 | 25.0 × | 10 × | 20 × |" in text
    assert text.count("\n| job | rival") == 1


def test_best_pass_of_warm_java_classes_counts() -> None:
    lines = [{"batches": 2, "records": 7, "bytes": 99, "seconds": s} for s in (0.9, 0.31, 0.3)]
    sample = warm_sample("\n".join(map(json.dumps, lines)).encode())
    assert (sample.seconds, sample.figures["median_pass"], sample.figures["passes"]) == (0.3, 0.31, 3)
    lines[1]["records"] = 6
    with pytest.raises(Failed, match="not read the same records"):
        warm_sample("\n".join(map(json.dumps, lines)).encode())


def test_lookup_row_without_a_hit_fails() -> None:
    found = {"type": "lookup", "found": True, "record": {"offset": 5}, "bytes_read": 4096}
    assert lookup_figures(json.dumps(found).encode()) == {"bytes_read": 4096}
    with pytest.raises(Failed):
        lookup_figures(json.dumps(found | {"found": False}).encode())


def test_private_memory_is_rss_anon_of_the_kernel() -> None:
    assert anonymous_bytes("VmHWM:\t  900 kB\nRssAnon:\t     123 kB\nRssFile:\t 700 kB\n") == 123 * 1024
    assert anonymous_bytes("VmHWM: 900 kB\n") == 0


def fake_kseg(directory: Path) -> Path:
    """A program called kseg that prints its arguments; for a lookup it prints an answer, for recover and compact it creates files."""
    script = directory / "kseg"
    answer = '{"type":"lookup","found":true,"record":{},"bytes_read":100}'
    # a shell starts many times faster than an interpreter
    script.write_text(
        "#!/bin/sh\nfor last; do :; done\n"
        'case " $* " in *" --apply "*) for log in "$last"/*/*.log; do [ ! -e "$log" ] || : >"${log%.log}.index"; done;; esac\n'
        'if [ "$1" = compact ]; then for log in "$last"/*.log; do [ ! -e "$log" ] || : >"$log.deleted"; done; fi\n'
        f'if [ "$1" = lookup ]; then echo \'{answer}\'; else echo "$*"; fi\n'
        'case " $* " in *" --bad "*) exit 9;; esac\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_programs_are_run_and_failures_reported(tmp_path: Path) -> None:
    kseg = fake_kseg(tmp_path)
    kept = run([kseg, "dump", "x"], keep=True, watch_memory=True)
    assert kept.output == b"dump x\n"
    run([kseg, "dump", "y"], into=tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"dump y\n"
    with pytest.raises(Failed, match="--bad ended with 9"):
        run([kseg, "--bad"])


def fake_reader(directory: Path) -> Path:
    """A program that reads nothing and reports the times of two passes."""
    script = directory / "rust_reader"
    script.write_text("#!/bin/sh\necho '{\"seconds\": 0.2}'\necho '{\"seconds\": 0.1}'\n")
    script.chmod(0o755)
    return script


def tiny_corpora(directory: Path, names: Iterable[str]) -> None:
    """Corpora that consist of a tiny log and a snapshot at offset 7."""
    for name in names:
        place = directory / name / "bench-0"
        place.mkdir(parents=True, exist_ok=True)
        (place / "00000000000000000000.log").write_bytes(b"log")
        (place / "00000000000000000007.snapshot").touch()


def test_best_pass_of_the_rust_reader_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rust_reader, "BINARY", fake_reader(tmp_path))
    assert rust_reader.turn("records", tmp_path)().seconds == 0.1


def test_record_shape_is_compared_with_as_many_standard_records(tmp_path: Path) -> None:
    """The fake takes only its start-up time, which is subtracted, so the scaled time is the minimum."""
    tiny_corpora(tmp_path, ["idempotent", "wide"])
    (tmp_path / "wide" / "bench-0" / "00000000000000000070.snapshot").touch()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    made = Tools(fake_kseg(tmp_path), tmp_path, {}, tmp_path, scratch)
    scaled = shape_rows.scaled(turns(1e-9), made, "idempotent", "wide", shape_rows.records)
    assert scaled().seconds == pytest.approx(1e-5)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """Tiny corpora, and fakes of all programs."""
    corpus, scratch = tmp_path / "corpus", tmp_path / "scratch"
    scratch.mkdir()
    keyed = ("keyed-plain", "keyed-lz4", *(f"keyed-{share:g}" for share in SERIES))
    codecs = ("plain", "lz4", "zstd", "snappy", "gzip")
    for name in ("big", *keyed, *(f"{codec}-{batch}" for codec in codecs for batch in (1, 100))):
        place = corpus / name / "bench-0"
        place.mkdir(parents=True)
        (place / "00000000000000000000.log").write_bytes(
            bytes(8) + (5).to_bytes(4, "big") + b"batch" + b"more"
        )
    (corpus / "many" / "many-0").mkdir(parents=True)
    (corpus / "many" / "many-0" / "00000000000000000000.log").touch()
    java = scratch / "java"
    java.write_text(
        '#!/bin/sh\ncase "$*" in *kseg.oracle.Warm*) echo \'{"batches":1,"records":1,"bytes":1,"seconds":0.1}\';;\n'
        '*kseg.oracle.Load*) echo \'{"partitions":1,"log_end_offsets":1,"seconds":0.1}\';;\n'
        '*kseg.oracle.Clean*) echo \'{"next_dirty_offset":1,"bytes_after":1,"seconds":0.1}\';; esac\n'
    )
    java.chmod(0o755)
    made = Tools(fake_kseg(tmp_path), java, {}, corpus, scratch)
    monkeypatch.setattr(sparse, "make", lambda directory: directory)
    monkeypatch.setattr(retain_rows, "SEGMENTS", 20)
    monkeypatch.setattr(decode_rows, "SIZE_BYTES", 1 << 16)
    monkeypatch.setattr(producer_corpus, "make", tiny_corpora)
    monkeypatch.setattr(rust_reader, "BINARY", fake_reader(tmp_path))
    return made


@pytest.mark.slow
def test_every_row_runs_on_a_tiny_corpus_with_a_fake_tool(tiny: Tools) -> None:
    # rows that run in a session of Spark
    in_sessions = ("source", "spark")
    raced = [each for each in rows(tiny) if not each.name.startswith(in_sessions)]
    results = [race(each, 1, Failed) for each in raced]
    assert [result.problem for result in results] == [None] * len(results)
    assert len({result.row.name for result in results}) == len(results) >= 25
    assert (tiny.scratch / "small-0" / "00000000000000000000.log").read_bytes()[12:] == b"batch"
    assert (tiny.scratch / "kseg.txt").read_text().startswith("dump --print-data-log ")


def test_two_versions_run_the_same_rows(tiny: Tools, tmp_path: Path) -> None:
    """What a row demands of the comparison with Kafka does not apply to them."""
    other = tmp_path / "other"
    other.mkdir()
    raced = {row.name: row for row in rows_against(tiny, fake_kseg(other))}
    assert len(raced) >= 25 and not any(name.startswith(("source", "spark")) for name in raced)
    result = race(raced["shallow"], 1, Failed)
    assert (result.problem, result.passes(), len(result.rival.samples)) == (None, None, 1)
    for missing in (other / "kseg", tiny.kseg):
        missing.unlink()
        problem = race(raced["shallow"], 1, OSError).problem
        assert problem is not None and f"'{missing}'" in problem


@pytest.mark.parametrize("way", ["page", "every"])
def test_touching_pages_takes_time(tmp_path: Path, way: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(300_000))
    warm(file)
    assert seconds_for(way, str(file)) > 0


def test_sparse_partition_has_the_claimed_records(tmp_path: Path) -> None:
    from kseg.inspection.lookup import lookup
    from kseg.inspection.query import LookupQuery
    from kseg.jobs.events import Row as Row_
    from kseg.segment.partition.targets import Expansion, resolve_targets

    partition = sparse.make(tmp_path, segments=3, segment_bytes=8 << 20)
    shape = sparse.grid(8 << 20)
    assert {path.stat().st_size for path in partition.glob("*.log")} == {shape.batches * shape.batch_bytes}
    offset = shape.middle_offset(1)
    (target,) = resolve_targets([str(partition)], expand=Expansion.PARTITIONS)
    for query in (
        LookupQuery(kind="offset", offset=offset),
        LookupQuery(kind="timestamp", timestamp_ms=sparse.FIRST_MS + offset),
    ):
        (answer,) = lookup(target, query)  # type: ignore[arg-type]
        assert isinstance(answer, Row_)
        assert answer.values["offset"] == offset
        assert 0 < cast(int, answer.values["bytes_read"]) <= FEW_BATCHES * shape.batch_bytes


def test_duel_is_run_once_for_all_contestants() -> None:
    fought = []

    def fight() -> dict[str, list[list[float]]]:
        fought.append(1)
        slow, fast = [[60.0, 80.0], [30.0, 40.0]], [[50.0, 50.0], [10.0, 12.0]]
        return {"kafka": slow, "kafka-log": fast, "same columns": fast, "prepared": [[9.0, 9.0], [9.0, 9.0]]}

    tools = Tools(Path("kseg"), Path("java"), {}, Path("corpus"), Path("scratch"))
    alone, raced, alike, bound = (race(each, 2, Failed) for each in source_rows(tools, fight))
    assert (alone.reached(), alone.passes(), alone.meets_aim()) == (10.0, True, False)
    assert (raced.reached(), raced.meets_aim(), alike.reached()) == (3.0, True, 3.0)
    assert (bound.reached(), bound.passes(), bound.meets_aim()) == (0.9, True, True)
    assert len(fought) == 8 and raced.kseg.largest("cpu_s") == 12.0
