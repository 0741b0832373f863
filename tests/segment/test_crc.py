"""Checksums: published check values, buffers that are not copied, and every backend equal to the bitwise definition."""

import mmap
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import crc
from tests.support.paths import ROOT

CASTAGNOLI_REFLECTED = 0x82F63B78
BINDINGS = [
    pytest.param(name, index, id=f"{name}-{candidate.__name__.strip('_')}")
    for name, candidates in crc._CANDIDATES.items()
    for index, candidate in enumerate(candidates)
]


def bitwise(data: bytes, polynomial: int, value: int = 0) -> int:
    """The definition, bit by bit: reflected, initial value and final XOR all ones."""
    register = value ^ 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (polynomial if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def test_crc_check_values_are_the_published_ones() -> None:
    # the vectors of fact sheet §12; the second is that of Kafka 0.7
    assert crc.crc32c(b"123456789") == 0xE3069283
    assert crc.crc32(b"hello") == 0x3610A686
    assert crc.crc32c(b"") == 0
    assert crc.crc32(b"") == 0
    # RFC 3720, appendix B.4
    assert crc.crc32c(bytes(32)) == 0x8A9136AA
    assert crc.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc.crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize(("name", "index"), BINDINGS)
@given(first=st.binary(max_size=200), second=st.binary(max_size=200))
def test_every_crc_backend_equals_the_bitwise_definition(
    name: str, index: int, first: bytes, second: bytes
) -> None:
    try:
        _, function = crc._CANDIDATES[name][index]()
    except ImportError:
        pytest.skip("not installed")
    expected = (
        bitwise(first + second, CASTAGNOLI_REFLECTED) if name == "crc32c" else zlib.crc32(first + second)
    )
    assert function(first + second) == expected
    assert function(memoryview(second), function(bytearray(first))) == expected


@pytest.mark.parametrize("function", [crc.crc32c, crc.crc32], ids=["crc32c", "crc32"])
def test_crc_of_a_read_only_mapping_copies_nothing(tmp_path: Path, function: crc.Checksum) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 64)
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        part = view[1000:13000]
        assert function(part) == function(bytes(part))
        assert function(view[500:1000], function(view[:500])) == function(view[:1000])
        part.release()
        view.release()


def test_crc_fallback_is_used_if_a_library_is_missing() -> None:
    program = (
        "import sys\n"
        "for name in ('crc32c', 'google_crc32c', 'isal'): sys.modules[name] = None\n"
        "from kseg.segment import crc\n"
        "assert crc.BACKEND == {'crc32c': 'crcmod', 'crc32': 'zlib'}, crc.BACKEND\n"
        "assert crc.crc32c(b'123456789') == 0xE3069283\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_crc_module_loads_no_library_until_it_is_used() -> None:
    program = (
        "import sys, kseg.segment.crc\n"
        "assert not {'isal', 'crc32c', 'crcmod', 'google_crc32c'} & set(sys.modules)\n"
        "from kseg.segment.crc import crc32c\n"
        "assert 'isal' not in sys.modules\n"
        "assert 'importlib.metadata' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_crc_backend_is_named() -> None:
    assert set(crc.BACKEND) == {"crc32c", "crc32"}
    assert all(crc.BACKEND.values())


def test_unknown_crc_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="crc64"):
        _ = crc.crc64  # type: ignore[attr-defined]
