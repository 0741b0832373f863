"""Ship kseg to nodes that do not have this version, as a zip of plain Python.

Before the first real job a small one probes every core, which also starts the Python workers. The probe does not import kseg: it must
run on nodes without it, and a Python worker outlives the job and would keep an old version loaded.
"""

import atexit
import os
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kseg import __version__

if TYPE_CHECKING:
    from pyspark import SparkContext

Notify = Callable[[str], None]
NodeVersion = tuple[str, str | None]  # host, version of kseg there

_checked: "weakref.WeakSet[SparkContext]" = weakref.WeakSet()


def ship_where_missing(context: "SparkContext", notify: Notify) -> None:
    """Make sure that all nodes have kseg of this version, once per context. notify: called with a sentence if kseg had to be shipped.

    Raises what Spark raises if the nodes cannot run Python at all.
    """
    if context in _checked:
        return
    outdated = sorted({host for host, version in _versions_on_nodes(context) if version != __version__})
    if outdated:
        context.addPyFile(_temporary_zip())
        where = outdated[0] if len(outdated) == 1 else f"{outdated[0]} and {len(outdated) - 1} other nodes"
        notify(
            f"kseg {__version__} is not installed on {where}: it is shipped there as plain Python, which is many times "
            "slower than compiled"
        )
    _checked.add(context)


def write_zip(path: str) -> None:
    """Write this package as a zip that Python can import; without compiled modules, so that it runs on every machine."""
    import kseg

    root = os.path.dirname(os.path.abspath(kseg.__file__))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for folder, folders, files in os.walk(root, followlinks=True):
            folders[:] = sorted(name for name in folders if name.isidentifier() and name != "__pycache__")
            for name in sorted(files):
                if name.endswith((".py", ".json")):
                    path_here = os.path.join(folder, name)
                    archive.write(path_here, os.path.join("kseg", os.path.relpath(path_here, root)))


def _temporary_zip() -> str:
    place = tempfile.mkdtemp(prefix="kseg-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    path = os.path.join(place, f"kseg-{__version__}.zip")
    write_zip(path)
    return path


def _versions_on_nodes(context: "SparkContext") -> list[NodeVersion]:
    slots = max(1, context.defaultParallelism)
    return context.parallelize(range(slots), slots).mapPartitions(_version_probe()).collect()


def _version_probe() -> Callable[[Iterable[int]], Iterator[NodeVersion]]:
    """The probe, as a function that is pickled by value and therefore must not refer to this module."""
    pattern, wanted = r"""^__version__ = "([^"]*)"$""", __version__

    def probe(_numbers: Iterable[int]) -> Iterator[NodeVersion]:
        import importlib
        import importlib.util
        import re
        import socket

        found = importlib.util.find_spec("kseg")
        get_source = getattr(found.loader, "get_source", None) if found is not None else None
        source = get_source("kseg") if get_source is not None else None
        match = re.search(pattern, source or "", re.MULTILINE)
        version = match[1] if match else None
        if version == wanted:
            # all tasks need it: imported now, the first ones need not wait for it
            importlib.import_module("kseg.spark.scheduling")
        yield socket.gethostname(), version

    probe.__module__ = "__main__"  # so that cloudpickle pickles its code, not its name
    return probe
