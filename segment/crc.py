"""The two checksums of Kafka's files: CRC-32C and the CRC-32 of zlib.

CRC-32C (Castagnoli) protects magic-2 batches and producer snapshots, CRC-32 protects messages of magic 0 and 1 and
those of 0.7. Both functions take any contiguous buffer (bytes, bytearray, a memoryview of a read-only map) without
copying it, and the checksum so far, so that a long range can be processed in pieces.

Binding (`bench/bindings.py` measures the alternatives, `docs/dependencies.md` explains the choice):

    crc32c    crc32c (SSE 4.2 or ARMv8 instructions)  →  google-crc32c  →  crcmod
    crc32     isal                                    →  zlib

A name is bound at its first use (`from kseg.segment.crc import crc32c`), directly to the function of the library:
no wrapper adds cost per call, and a run that needs one checksum does not load the other.
"""

import importlib
import importlib.machinery
import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer

    BACKEND: dict[str, str]

    def crc32c(data: Buffer, value: int = 0, /) -> int:
        """CRC-32C of `data`, unsigned; `value` is the checksum of the bytes before it."""

    def crc32(data: Buffer, value: int = 0, /) -> int:
        """CRC-32 (zlib's polynomial) of `data`, unsigned; `value` is the checksum of the bytes before it."""


Checksum = Callable[..., int]


def _extension_of(package: str, module: str) -> Any:
    """Load a compiled module without running the `__init__` of its package.

    The `__init__` of crc32c costs 35 ms of start-up (it looks up its own version and builds a command line);
    the extension alone costs 0.5 ms.
    """
    outer = importlib.util.find_spec(package)
    if outer is None or outer.submodule_search_locations is None:
        raise ImportError(f"no package {package}")
    name = f"{package}.{module}"
    spec = importlib.machinery.PathFinder.find_spec(name, outer.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module {name}")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def _crc32c_package() -> tuple[str, Checksum]:
    try:
        extension = _extension_of("crc32c", "_crc32c")
    except ImportError:  # another release with a different layout: import the package
        extension = importlib.import_module("crc32c")
    function: Checksum = extension.crc32c
    return f"crc32c ({'hardware' if extension.hardware_based else 'software'})", function


def _google() -> tuple[str, Checksum]:
    library = importlib.import_module("google_crc32c")
    extend: Callable[[int, bytes], int] = library.extend

    def crc32c(data: "Buffer", value: int = 0, /) -> int:
        return extend(value, bytes(data))  # it rejects a memoryview, so this alternative has to copy

    return f"google-crc32c ({library.implementation})", crc32c


def _crcmod() -> tuple[str, Checksum]:
    library = importlib.import_module("crcmod.predefined")
    function: Checksum = library.mkPredefinedCrcFun("crc-32c")
    return "crcmod", function


# CRC-32C's polynomial, with the bits reversed as in the checksum.
CASTAGNOLI = 0x82F63B78
_ALL_ONES = 0xFFFFFFFF


def crc32c_of_zeros(count: int, value: int = 0) -> int:
    """CRC-32C of `count` zero bytes, computed without reading any; `value` is the checksum of the bytes before them.

    The effect of a zero bit on the register is linear over GF(2), so the effect of n zero bits is the n-th power of a matrix."""
    # the matrix of one zero bit: where it moves each bit of the register
    power = [CASTAGNOLI, *(1 << bit for bit in range(31))]
    register, bits = value ^ _ALL_ONES, 8 * count
    while bits:
        if bits & 1:
            register = through(power, register)
        bits >>= 1
        power = [through(power, column) for column in power]
    return register ^ _ALL_ONES


def through(matrix: Sequence[int], register: int) -> int:
    """The register after a linear step. matrix: the value to which each bit leads, the lowest bit first."""
    result = 0
    for column in matrix:
        if register & 1:
            result ^= column
        register >>= 1
    return result


def _isal() -> tuple[str, Checksum]:
    function: Checksum = importlib.import_module("isal.isal_zlib").crc32
    return "isal", function


def _zlib() -> tuple[str, Checksum]:
    function: Checksum = importlib.import_module("zlib").crc32
    return "zlib", function


_CANDIDATES: dict[str, tuple[Callable[[], tuple[str, Checksum]], ...]] = {
    "crc32c": (_crc32c_package, _google, _crcmod),
    "crc32": (_isal, _zlib),
}


def _bind(checksum: str) -> tuple[str, Checksum]:
    """The first candidate that loads, as (its name, the function)."""
    *rivals, last = _CANDIDATES[checksum]
    for candidate in rivals:
        try:
            return candidate()
        except (ImportError, AttributeError):
            continue
    return last()


if not TYPE_CHECKING:  # type checkers should know only the names above

    def __getattr__(name: str) -> object:
        """Binds `crc32c`, `crc32` or `BACKEND` (checksum → name of the library in use) at its first use."""
        bound: object
        if name == "BACKEND":
            bound = {checksum: _bind(checksum)[0] for checksum in _CANDIDATES}
        elif name in _CANDIDATES:
            bound = _bind(name)[1]
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = bound
        return bound
