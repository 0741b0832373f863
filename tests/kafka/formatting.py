"""Data directories as `kafka-storage.sh format` makes them.

The tool takes half a second of processor time. A test process runs it for the first node of each kind, and later nodes get the same files
with their own ids, generated as the tool does it.
"""

from __future__ import annotations

import base64
import re
import uuid
from pathlib import Path

from tests.kafka.shared_java import run_java

# the settings in server.properties that the tool's files depend on
_DECIDING = ("node.id", "process.roles", "controller.quorum.", "metadata.", "unstable.", "feature.")
_NAMES = ("meta.properties", "bootstrap.checkpoint")
_PLACES = re.compile(r"controller\.quorum\.voters=(\d+)@.*")
_files: dict[str, dict[str, bytes]] = {}


class FormatFailed(Exception):
    """The tool failed; the message contains its output."""


def format_log_dirs(server_properties: Path) -> None:
    """Format all of `log.dirs` as a cluster of its own. None of them may be formatted."""
    lines = server_properties.read_text().splitlines()
    (log_dirs,) = (line.partition("=")[2].split(",") for line in lines if line.startswith("log.dirs="))
    kind = "\n".join(_PLACES.sub(r"\1", line) for line in sorted(lines) if line.startswith(_DECIDING))
    cluster = new_identity()
    if kind not in _files:
        format_with_tool(server_properties, cluster)
        _files[kind] = {name: Path(log_dirs[0], name).read_bytes() for name in _NAMES}
        return
    for log_dir in map(Path, log_dirs):
        log_dir.mkdir(parents=True, exist_ok=True)
        for name, data in _files[kind].items():
            own = _with_identities(data, cluster) if name == "meta.properties" else data
            (log_dir / name).write_bytes(own)


def new_identity() -> str:
    """A random id. Starts with a letter, so that it does not look like an option."""
    return "K" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


def _with_identities(meta_properties: bytes, cluster: str) -> bytes:
    text = re.sub(r"(?m)^cluster\.id=.*$", f"cluster.id={cluster}", meta_properties.decode())
    return re.sub(r"(?m)^directory\.id=.*$", f"directory.id={new_identity()}", text).encode()


def format_with_tool(server_properties: Path, cluster: str, *flags: str) -> None:
    """Run `kafka-storage.sh format`."""
    tool = ("kafka.tools.StorageTool", "format")
    done = run_java(*tool, *flags, "-t", cluster, "-c", str(server_properties))
    if done.returncode:
        raise FormatFailed(f"{done.stdout}\n{done.stderr}")
