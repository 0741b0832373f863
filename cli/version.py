"""`kseg --version`: the version of kseg, whether its kernels are compiled, and the versions of its dependencies.

Versions of dependencies are read from the names of their `.dist-info` folders: importing them, or `importlib.metadata`, would
take longer than everything else here.
"""

import importlib
import os
import sys

from kseg import __version__

# kernel modules without an extension module: the C code of two is inlined from their .pxd, `buffer_types` is for type checkers
INLINED = (
    "__init__",
    "arithmetic",
    "keymap_probe",
    "buffer_access",
    "state_fields",
    "message_fields",
    "buffer_types",
)
DEPENDENCIES = (
    "typer",
    "rich",
    "jinja2",
    "crc32c",
    "google-crc32c",
    "crcmod",
    "isal",
    "zstandard",
    "lz4",
    "deflate",
    "cramjam",
    "python-snappy",
)


def report() -> str:
    from kseg.segment import crc

    versions = " · ".join(f"{name} {version}" for name, version in installed().items())
    return "\n".join(
        [
            f"kseg {__version__}",
            f"kernel: {kernel_state()}",
            f"CRC-32C: {crc.BACKEND['crc32c']} · CRC-32: {crc.BACKEND['crc32']}",
            f"python {'.'.join(map(str, sys.version_info[:3]))} ({sys.implementation.name}, {sys.platform})",
            versions,
        ]
    )


def kernel_state() -> str:
    """Whether the hot loops are compiled."""
    names = kernels()
    slow = [name for name in names if not _is_compiled(name)]
    if not slow:
        return "compiled"
    if len(slow) == len(names):
        return "interpreted (no compiled modules: install with a C compiler to be many times faster)"
    return f"compiled, but interpreted: {', '.join(slow)}"


def kernels() -> list[str]:
    """The modules of the kernel room that are compiled."""
    from kseg.segment import kernel

    files = (os.path.splitext(entry) for entry in os.listdir(kernel.__path__[0]))
    return sorted(stem for stem, suffix in files if suffix == ".py" and stem not in INLINED)


def installed() -> dict[str, str]:
    wanted = {name.replace("-", "_").lower(): name for name in DEPENDENCIES}
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in names:
            stem, dot, _ = entry.rpartition(".dist-info")
            name, dash, version = stem.rpartition("-")
            known = wanted.get(name.replace("-", "_").lower()) if dot and dash else None
            if known and known not in found:
                found[known] = version
    return {name: found[name] for name in DEPENDENCIES if name in found}


def _is_compiled(name: str) -> bool:
    module = importlib.import_module(f"kseg.segment.kernel.{name}")
    return not str(module.__file__).endswith(".py")
