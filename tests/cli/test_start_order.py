"""Where an unclean election is ahead, `doctor` says which nodes to start first, or copies the longer replicas if no order prevents it."""

from __future__ import annotations

from kseg.cli.doctor.replica_steps import Replicas, replace_behind, start_in_order
from kseg.cli.request import Request
from kseg.segment.diagnosis import Lack, ReplicaBehind
from kseg.segment.findings import Finding


def steps_of(*found: tuple[str, str, int, int]) -> tuple[list[str], list[str]]:
    """The commands that copy replicas, and the sentences about the order. found: (replica, the longer one, its node, own node)."""
    replicas = Replicas(Request(()))
    for path, other, node, own_node in found:
        about = ReplicaBehind(other, node, 5, 9, Lack.OUT_OF_SYNC, own_node)
        assert replicas.takes(Finding("unclean-election-ahead", path, "", diagnosis=about))
    copies = [step.command for step in replace_behind(replicas)]
    return copies, [step.why.partition(":")[0] for step in start_in_order(replicas, ())]


def copied(source: str, path: str) -> str:
    return f"cp -a -T {source} {path}.kseg-copying && sync -f {path}.kseg-copying && mv -T {path}.kseg-copying {path}"


def test_nodes_with_the_longest_replicas_start_first() -> None:
    assert steps_of(("/1/a-0", "/3/a-0", 3, 1), ("/2/a-0", "/3/a-0", 3, 2), ("/1/b-0", "/4/b-0", 4, 1)) == (
        [],
        ["Start node 3, node 4 before node 1, node 2, and wait until they lead"],
    )
    assert steps_of() == ([], [])


def test_replicas_are_copied_if_each_node_would_have_to_start_first() -> None:
    both = ("/1/a-0", "/3/a-0", 3, 1), ("/3/b-0", "/1/b-0", 1, 3)
    assert steps_of(*both) == ([copied("/3/a-0", "/1/a-0"), copied("/1/b-0", "/3/b-0")], [])


def test_replica_is_copied_if_its_node_is_a_voter() -> None:
    """A node that is a broker and a controller is needed for a quorum."""
    assert steps_of(("/1/a-0", "/3/a-0", 3, -1)) == ([copied("/3/a-0", "/1/a-0")], [])
