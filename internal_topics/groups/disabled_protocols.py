"""Groups that no client of their protocol can use, because the feature of that protocol has level 0, or because
group.coordinator.rebalance.protocols in server.properties lacks it (consumer and streams; it has no effect on share groups).

A 4.3.1 coordinator loads such a group, lists it and keeps its offsets, but answers UNSUPPORTED_VERSION to the heartbeats of its members
and to whoever describes it, and its clients end. Consumers of the classic protocol go on from the offsets of a consumer group. Once the
level is raised, which takes no restart, the members join again where they had stopped (all observed with 4.3.1).
"""

from collections.abc import Iterable, Iterator, Mapping

from kseg.internal_topics.groups.group_results import ListedGroup
from kseg.internal_topics.groups.group_states import GroupType
from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.internal_topics.metadata.refused_features import METADATA_VERSION
from kseg.segment.counted import counted
from kseg.segment.diagnosis import UnusableGroups
from kseg.segment.findings import Finding

_FEATURES = {
    GroupType.CONSUMER: "group.version",
    GroupType.SHARE: "share.version",
    GroupType.STREAMS: "streams.version",
}


PROTOCOLS = "group.coordinator.rebalance.protocols"
_IN_PROPERTIES = (GroupType.CONSUMER, GroupType.STREAMS)


def disabled_protocols(newest: MetadataImage | None, groups: Iterable[ListedGroup]) -> Iterator[Finding]:
    """A finding about the metadata log for each feature that is too low. newest: of the metadata logs that were found; nothing is said if
    it may be incomplete, or has no features at all, with which no node starts."""
    if newest is None or not newest.is_certain or METADATA_VERSION not in newest.features:
        return
    names = _by_type(groups)
    for kind, feature in _FEATURES.items():
        if kind in names and not newest.features.get(feature, 0):
            yield _finding(newest.path, kind, feature, f"{feature} has level 0", names[kind])


def protocols_left_out(
    file: str, server: Mapping[str, str], groups: Iterable[ListedGroup]
) -> Iterator[Finding]:
    """A finding about server.properties for each protocol that it leaves out. server: its content."""
    enabled = [each.strip() for each in server.get(PROTOCOLS, "").split(",")]
    names = _by_type(groups)
    for kind in _IN_PROPERTIES if PROTOCOLS in server else ():
        if kind in names and kind not in enabled:
            yield _finding(file, kind, PROTOCOLS, f"{PROTOCOLS} lacks {kind}", names[kind])


def _by_type(groups: Iterable[ListedGroup]) -> dict[str, tuple[str, ...]]:
    names: dict[str, list[str]] = {}
    for group in sorted(groups, key=lambda each: each.group):
        names.setdefault(group.group_type, []).append(group.group)
    return {kind: tuple(found) for kind, found in names.items()}


def _finding(path: str, kind: GroupType, setting: str, why: str, names: tuple[str, ...]) -> Finding:
    more = f" (and {counted(len(names) - 1, 'more group')} likewise)" if len(names) > 1 else ""
    message = (
        f"{why}, but {names[0]} is a {kind} group: its coordinator answers UNSUPPORTED_VERSION to every client of "
        f"the {kind} protocol{more}"
    )
    about = UnusableGroups(kind.value, setting, names)
    return Finding.about("group-protocol-disabled", path, message, about)
