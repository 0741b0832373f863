"""The groups of an examination, loaded once: offsets outside their logs, and those that expire soon after a start."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kseg.cli.request import Request
from kseg.jobs.events import Event, Row
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding

if TYPE_CHECKING:
    from kseg.internal_topics.groups.offset_expiry import ExpiryCheck
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
    from kseg.segment.partition.targets import LogTarget


def group_events(
    request: Request,
    metadata: str | None,
    finder: "MetadataFinder | None",
    server: Mapping[str, str] | None,
    expiry_of: "Callable[[Sequence[LogTarget]], ExpiryCheck | None]",
    over: Callable[..., Iterator[Event]],
) -> Iterator[Row | Finding]:
    """The rows of all groups under the paths of the request, and the findings about them; none if its metadata log cannot be used.

    metadata: the log that the user named. finder: of the metadata logs of these paths. server: the content of server.properties. expiry_of:
    how to look for expiring offsets in these partitions. over: runs work on targets.
    """
    from kseg.cli.group_evidence import group_evidence
    from kseg.cli.group_stream import GroupRows
    from kseg.internal_topics.groups.groups import GroupsOptions, is_group_topic, list_groups

    try:
        evidence = group_evidence(request.paths, metadata, finder=finder)
    except KsegError:
        return
    targets = {target.path: target for each in evidence.replicas.values() for target in each}
    wanted = [
        target for path, target in targets.items() if path in evidence.chosen and is_group_topic(target)
    ]
    options = GroupsOptions(
        names=evidence.names,
        replicas=evidence.replicas,
        tiered=evidence.tiered,
        topics=request.topics,
        partition=request.partition,
        expiry=expiry_of(wanted),
    )
    known = None if server is None else (str(request.also["--server-properties"]), server)
    rows = GroupRows(evidence, (), options, keeps_offsets=False, server=known)
    for event in rows.through(over(list_groups, wanted, options)) if wanted else ():
        if isinstance(event, Row | Finding):
            yield event
