"""The stream of events of `groups`, with what can only be said once all partitions of the two topics have been read."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kseg.cli.share_groups import ShareGroups
from kseg.internal_topics.groups.disabled_protocols import disabled_protocols, protocols_left_out
from kseg.internal_topics.groups.group_results import (
    AboutGroup,
    CoordinatorsOffsets,
    ListedGroup,
    OffsetOfGroup,
)
from kseg.internal_topics.groups.groups import missing_groups
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.findings import ERROR, Finding

if TYPE_CHECKING:
    from kseg.cli.group_evidence import GroupEvidence
    from kseg.internal_topics.groups.groups import GroupsOptions


class GroupRows:
    """Filters the stream of events: adds a row for each requested group that was not found, compares what the two topics of share groups
    have of them (`share_groups`), adds findings about groups whose protocol is disabled, and collects the offsets for a reset file.

    asked: the names of --group. options: of the run. keeps_offsets: whether a reset file is wanted. server: the path and the content of
    server.properties.
    """

    def __init__(
        self,
        evidence: "GroupEvidence",
        asked: Sequence[str],
        options: "GroupsOptions",
        *,
        keeps_offsets: bool,
        server: tuple[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._evidence = evidence
        self._asked = asked
        self._is_of_today = options.at_ms is None
        self._share_groups = ShareGroups(evidence, options)
        self._unclear: set[str] = set()  # directories with errors
        self._keeps_offsets = keeps_offsets
        self._server = server
        self._found: set[str] = set()
        self._listed: list[ListedGroup] = []
        self._offsets = CoordinatorsOffsets[int]()
        self.is_whole = False  # whether all rows have passed

    @property
    def offsets(self) -> list[tuple[str, str, int, int]]:
        """Group, topic, partition and offset, in the order of the rows."""
        return [(*key, offset) for key, offset in self._offsets.by_key.items()]

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        """The same events, except that some rows of type share_offset come last; further ones of this type, of type missing_group, and
        findings."""
        for event in events:
            if isinstance(event, Row):
                self._note(event.result)
            elif isinstance(event, Failure) or (isinstance(event, Finding) and event.severity == ERROR):
                self._unclear.update((event.path, os.path.dirname(event.path)))
            if not (isinstance(event, Row) and self._share_groups.holds(event)):
                yield event
        yield from self._share_groups.rows(self._unclear)
        evidence = self._evidence
        if self._is_of_today:
            yield from disabled_protocols(evidence.newest_image, self._listed)
            if self._server is not None:
                yield from protocols_left_out(*self._server, self._listed)
        count = evidence.count_given(self._found)
        for row in missing_groups(self._asked, self._found, evidence.offsets_partitions, count):
            yield Row(row)
        self.is_whole = True

    def _note(self, result: object) -> None:
        if isinstance(result, AboutGroup):
            self._found.add(result.group)
        if isinstance(result, ListedGroup):
            self._listed.append(result)
        if isinstance(result, OffsetOfGroup) and self._keeps_offsets:
            self._offsets.add(result, result.offset)
