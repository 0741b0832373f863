"""The steps for contradictions between server.properties and the data directories. Each edits the file, and keeps the original as
FILE.before.

Observed with 4.3.1 (tests/kafka/test_server_properties.py): a node does not start with another node id, with a directory in log.dirs that
is missing, not formatted or listed in two spellings, or with the metadata log in another directory. It does start without a directory that
log.dirs does not name, and recreates the partitions in it empty.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence

from kseg.cli.doctor.next_step import NextStep
from kseg.cli.doctor.quorum_steps import reach_controllers
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.internal_topics.metadata.metadata_image import Voter
from kseg.recovery.broker_start.log_dir_start import is_empty_directory
from kseg.recovery.broker_start.node_properties import NodeProperties
from kseg.segment.counted import listed
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shown_path
from kseg.segment.values import dataclass

_LISTED = 3


@dataclass(frozen=True, slots=True)
class PropertiesOfNode:
    """server.properties and the data directories of its node. file, properties, server: its path and content. stored_id: the node id in the
    data directories, metadata_log_dir: the one with the metadata log; None if unknown or ambiguous. log_dirs: the checked directories.
    voters: of the quorum, as the node knows them."""

    file: str
    properties: NodeProperties
    stored_id: int | None
    metadata_log_dir: str | None
    log_dirs: tuple[str, ...]
    server: Mapping[str, str]
    voters: Sequence[Voter]

    def wanted(self) -> list[str]:
        """The right value of log.dirs: its directories and the checked ones, each once."""
        return list(dict.fromkeys(map(self.spelt, (*self.properties.log_dirs, *self.log_dirs))))

    def spelt(self, path: str) -> str:
        """A data directory as log.dirs spells it, since a broker takes another spelling for another directory; its absolute path if
        log.dirs does not name it."""
        real = places.realpath(path)
        named = (each for each in self.properties.log_dirs if places.realpath(each) == real)
        return next(named, places.abspath(path))

    def unchecked(self) -> list[str]:
        known = {places.realpath(path) for path in self.log_dirs}
        return [
            path
            for path in self.wanted()
            if places.realpath(path) not in known and places.isdir(path) and not is_empty_directory(path)
        ]


def properties_steps(node: PropertiesOfNode, request: Request) -> Iterator[NextStep]:
    """The steps; none if there is no contradiction, or if the directories are copies of those in the file."""
    properties, file = node.properties, shown_path(node.file)
    is_another = None not in (node.stored_id, properties.node_id) and node.stored_id != properties.node_id
    if is_another and properties.listening_voter == properties.node_id:
        yield NextStep(
            f"{file} is that of node {properties.node_id}, as its listeners in controller.quorum.voters show. But the data directories belong to "
            f"node {node.stored_id}, and a broker does not start: find those of node {properties.node_id}, and mount these on the machine "
            f"of node {node.stored_id}. (If they are a copy, never start it as node {node.stored_id} beside the original.)",
            rf"find / -name meta.properties -exec grep -l '^node\.id *= *{properties.node_id}$' {{}} +",
        )
    elif is_another:
        yield NextStep(
            f"{file} has node id {properties.node_id}, but the data directories belong to node "
            f"{node.stored_id}: a broker does not start. Use the file of node {node.stored_id}, or, if "
            "the id was changed by mistake and no other node has that id, correct it.",
            _edited(rf"s/^((node|broker)\.id)\s*=.*/\1={node.stored_id}/", node.file),
        )
    yield from reach_controllers(node.file, node.server, node.voters)
    left_out = properties.leaves_out(node.log_dirs)
    is_copy = bool(node.log_dirs) and len(node.wanted()) == len(node.log_dirs) + len(
        {places.realpath(path) for path in properties.log_dirs}
    )
    if is_copy:
        return
    wanted = node.wanted()
    if left_out:
        yield NextStep(
            "log.dirs lacks "
            f"{listed([*map(shown_path, left_out[: _LISTED + 1])], _LISTED, number=len(left_out))}: a "
            "broker loads no log from there, and recreates the partitions empty in the directories that "
            "it has. Add what belongs to it.",
            _with_log_dirs(wanted, node.file),
        )
    elif len(wanted) < len(properties.log_dirs):
        yield NextStep(
            "log.dirs has one directory in two spellings; a broker takes the second for a copy, and does not start.",
            _with_log_dirs(wanted, node.file),
        )
    place = node.metadata_log_dir
    if place is not None and not properties.is_metadata_log_dir(place):
        yield NextStep(
            f"The metadata log is in {shown_path(place)}, but according to {file} it belongs in "
            f"{shown_path(properties.metadata_log_dir)} (metadata.log.dir, else the first of log.dirs): "
            "a broker does not start.",
            f"printf '\\nmetadata.log.dir=%s\\n' {shell_quoted(node.spelt(place))} >> {shell_quoted(node.file)}",
        )
    if node.unchecked():
        paths = tuple(dict.fromkeys((*request.paths, *node.unchecked())))
        yield NextStep(
            "log.dirs has more directories than were examined; examine all of them.",
            command_line("doctor", {}, Request(paths, also=request.also)),
            is_due=False,
        )


def unformatted_log_dirs(properties: NodeProperties, log_dirs: Sequence[str]) -> list[str]:
    """Directories of log.dirs that do not exist or are empty; none if none of the examined ones is in log.dirs."""
    known = {places.realpath(path) for path in log_dirs}
    if known.isdisjoint(map(places.realpath, properties.log_dirs)):
        return []
    return [path for path in properties.log_dirs if not places.lexists(path) or is_empty_directory(path)]


def _with_log_dirs(log_dirs: Sequence[str], file: str) -> str:
    return _edited(rf"s#^log\.dirs?\s*=.*#log.dirs={','.join(log_dirs)}#", file)


def _edited(script: str, file: str) -> str:
    return f"sed -i.before -E {shlex.quote(script)} {shell_quoted(file)}"
