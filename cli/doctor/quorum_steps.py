"""The steps for controllers whose data directory was reformatted, in a dynamic quorum (KIP-853).

A voter is a node with a directory id, and only a leader can take one out of the quorum or add one. While a majority of the former voters is
left, that is what to do, once they run. Otherwise a quorum can be formed again only with the former directory ids (observed with 4.3.1).

A node without a metadata log, or with that of another quorum, exits if the leader from before the stop resigns meanwhile
(IllegalArgumentException: Unknown leader endpoints, observed with 4.3.1), so the other nodes are started first.
"""

import os
import shlex
from collections.abc import Iterator, Sequence

from kseg.cli.doctor.next_step import NextStep, move_out
from kseg.segment.diagnosis import ReplacedVoter
from kseg.segment.partition.names import METADATA_DIRECTORY, NAME_BY_ROLE, Role
from kseg.segment.terminal import shell_quoted, shown_path

_TOOL = "kafka-metadata-quorum.sh --bootstrap-controller HOST:PORT"


def restore_voters(replaced: Sequence[ReplacedVoter]) -> Iterator[NextStep]:
    """The steps before any of the nodes starts."""
    for each in replaced:
        if each.is_quorum_lost:
            file = os.path.join(each.log_dir, NAME_BY_ROLE[Role.META_PROPERTIES])
            edit = shlex.quote(rf"s/^directory\.id *=.*/directory.id={each.directory_id}/")
            yield NextStep(
                f"{shown_path(file)} has a different directory id than node {each.voter} had as a voter, and too few voters are left "
                "to add it. If the former data directory is lost, give this one its id, with a metadata log beside it that has all records: "
                "before any of the nodes starts, and only here.",
                f"sed -i.before {edit} {shell_quoted(file)}",
            )
        elif each.foreign_log is not None:
            yield _set_apart(each.foreign_log, each.voter)


def _set_apart(metadata_log: str, node_id: int) -> NextStep:
    return move_out(
        f"{shown_path(metadata_log)} belongs to a quorum of its own: node {node_id} elects itself, and serves no other node. With the node stopped, "
        f"move it out of the data directory: the node fetches {METADATA_DIRECTORY} from the other controllers.",
        metadata_log,
    )


def add_voters(replaced: Sequence[ReplacedVoter]) -> Iterator[NextStep]:
    """The steps once the controllers run. Not due: the cluster works without them."""
    for each in replaced:
        if not each.is_quorum_lost:
            yield NextStep(
                f"Node {each.voter} is no longer a voter, because its data directory was reformatted. Start the other controllers first, and once they "
                "have elected a leader, remove the former directory from the quorum.",
                f"{_TOOL} remove-controller --controller-id {each.voter} --controller-directory-id {each.directory_id}",
                is_due=False,
            )
            yield NextStep(
                f"Then start node {each.voter}, and on its machine add its new directory.",
                f"{_TOOL} --command-config server.properties add-controller",
                is_due=False,
            )
