"""The steps for controllers whose data directory was reformatted, in a dynamic quorum (KIP-853).

A voter is a node with a directory id, and only a leader can take one out of the quorum or add one. While a majority of the former voters is
left, that is what to do, once they run. Otherwise a quorum can be formed again only with the former directory ids (observed with 4.3.1).

A node without a metadata log, or with that of another quorum, exits if the leader from before the stop resigns meanwhile
(IllegalArgumentException: Unknown leader endpoints, observed with 4.3.1), so the other nodes are started first.

The metadata log also has the addresses of the voters. Nodes that were restored on other machines go on asking the recorded ones: several
controllers elect no leader then, and a broker that remembers the leader (quorum-state) does not try those in controller.quorum.voters, only
those in controller.quorum.bootstrap.servers (observed with 4.3.1).
"""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence

from kseg.cli.doctor.next_step import NextStep, move_out
from kseg.internal_topics.metadata.metadata_image import Voter
from kseg.recovery.broker_start.node_properties import listeners_of
from kseg.segment.counted import listed
from kseg.segment.diagnosis import ReplacedVoter
from kseg.segment.partition.names import METADATA_DIRECTORY, NAME_BY_ROLE, Role
from kseg.segment.terminal import shell_quoted, shell_word, shown_path

_LISTED = 5
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


def reach_controllers(file: str, server: Mapping[str, str], voters: Sequence[Voter]) -> Iterator[NextStep]:
    """The step if the controllers have other addresses in server.properties than in the metadata log. Not due: both may lead to the same
    machines. file: the path of server.properties."""
    recorded = {str(voter.id): voter.endpoints for voter in voters if voter.endpoints}
    there = [address for endpoints in recorded.values() for address in endpoints]
    own = recorded.get(server.get("node.id", "").strip())
    bootstrap = server.get("controller.quorum.bootstrap.servers", "").strip()
    static = server.get("controller.quorum.voters", "").strip()
    here = _addresses(bootstrap or static) if own is None else _controller_listeners(server)
    if not there or not here or any(_are_alike(a, b) for a in here for b in (there if own is None else own)):
        return
    moved = f"The metadata log has the controllers at {listed(there, _LISTED)}, and {shown_path(file)} has {listed(here, _LISTED)}. "
    if len(recorded) > 1:
        hosts = dict.fromkeys(address.rpartition(":")[0] for address in there)
        yield NextStep(
            f"{moved}The controllers ask each other for votes only at the recorded addresses: if these do not lead to them any more, no leader is "
            "elected, and no node serves. Before the start, let the recorded hosts lead to the machines on which they run now (DNS, /etc/hosts), "
            "with the same ports. See where they lead.",
            f"getent hosts {' '.join(map(shell_word, hosts))}",
            is_due=False,
        )
    elif own is None and not bootstrap:
        edit = shlex.quote(
            rf"s/^controller\.quorum\.voters\s*=.*/controller.quorum.bootstrap.servers={','.join(here)}/"
        )
        yield NextStep(
            f"{moved}A node that remembers the leader asks only the recorded address. Unless it leads to the controller, name the controller in "
            "controller.quorum.bootstrap.servers instead of controller.quorum.voters: these are tried as well.",
            f"sed -i.before -E {edit} {shell_quoted(file)}",
            is_due=False,
        )


def _addresses(value: str) -> list[str]:
    """Those in controller.quorum.bootstrap.servers or controller.quorum.voters."""
    return [address for each in value.split(",") if (address := each.strip().rpartition("@")[2])]


def _controller_listeners(server: Mapping[str, str]) -> list[str]:
    names = {each.strip() for each in server.get("controller.listener.names", "").split(",")} - {""}
    return [address for name, address in listeners_of(server) if name in names]


def _are_alike(address: str, other: str) -> bool:
    """A listener without a host, or with 0.0.0.0, has the name of its machine."""
    (host, _, port), (other_host, _, other_port) = address.rpartition(":"), other.rpartition(":")
    return port == other_port and (host in ("", "0.0.0.0") or host.lower() == other_host.lower())


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
