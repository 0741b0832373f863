"""Whether retention applies to a partition, and with which limits: those of its topic if the run was given topic settings,
otherwise those of the command line."""

from dataclasses import replace
from functools import lru_cache

from kseg.change.plan.steps import FileIdentity
from kseg.compaction.known_settings import config_of, of_old_format, settings_for, unknown_policy
from kseg.compaction.retention.options import (
    NO_LIMITS,
    Limits,
    RetainOptions,
    configured_delay_ms,
    configured_expiration_ms,
    configured_limits,
)
from kseg.segment import layout as L
from kseg.segment.errors import UsageError
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import SHARE_GROUP_STATE_TOPIC, PartitionState
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.partition.topic_settings import TopicSettings
from kseg.segment.values import Same


def known_for(
    target: PartitionTarget, inputs: tuple[FileIdentity, ...], options: RetainOptions
) -> TopicSettings | None:
    """The topic settings of a partition; None when the run has no topic settings."""
    known = settings_for(target, options.topics)
    return of_old_format(known) if known is not None and is_kafka07(inputs) else known


def configured(
    target: PartitionTarget, known: TopicSettings | None, options: RetainOptions
) -> tuple[RetainOptions, Finding | None]:
    """The options with the limits of the topic; and a finding if its policy is unknown and that matters: then nothing is marked."""
    name = own_partition_name(target.path)
    if known is None:
        if name is not None and not options.is_policy_given:
            options = replace(options, limits=options.limits.for_topic(name.topic))
        return options, None
    topic = None if name is None else name.topic
    options, known = _with_limits(topic or target.path, topic, Same(known), Same(options))
    return options, None if options.only_marked else unknown_policy(target, known)


@lru_cache(maxsize=64)  # the partitions of a topic have the same settings
def _with_limits(
    owner: str, topic: str | None, same_settings: Same[TopicSettings], same_options: Same[RetainOptions]
) -> tuple[RetainOptions, TopicSettings]:
    """The options with the limits of a topic, and its settings with the reason if the policy is unknown. owner: for errors."""
    known, options = same_settings.value, same_options.value
    try:
        config = config_of(owner, known)
        limits, delay_ms = configured_limits(config), configured_delay_ms(config)
        expiration_ms = configured_expiration_ms(config)
    except UsageError as error:  # a value that no broker accepts: the intended policy is unknown
        known, limits, delay_ms = replace(known, unknown=str(error)), Limits(), None
        expiration_ms = None
    if options.only_marked or known.unknown:
        limits = replace(NO_LIMITS, is_tiered=limits.is_tiered)
        options = replace(options, log_start_offset=None)
    elif topic == SHARE_GROUP_STATE_TOPIC and not options.is_policy_given:
        limits = limits.for_topic(topic)
    if delay_ms is not None:
        options = replace(options, file_delete_delay_ms=delay_ms)
    if expiration_ms is not None:
        options = replace(options, producer_id_expiration_ms=expiration_ms)
    return replace(options, limits=limits, remote_end_offset=known.remote_end_offset), known


def exempted(target: PartitionTarget) -> Finding | None:
    """Why a broker's retention skips a directory."""
    name = own_partition_name(target.path)
    if name is None or (
        name.state in (PartitionState.LIVE, PartitionState.FUTURE) and not name.is_metadata_log
    ):
        return None
    if name.is_metadata_log:
        why = "snapshots trim the metadata log, not retention"
    else:
        why = f"the directory was set aside ({name.state}), so a broker does not apply retention to it"
    return Finding("not-retained", target.path, why)


def is_kafka07(inputs: tuple[FileIdentity, ...]) -> bool:
    """Whether this is a 0.7 log: `.kafka` files and no `.log`. Determined by suffixes: a large log has many names."""
    return any(file.name.endswith(L.KAFKA07_SUFFIX) for file in inputs) and not any(
        file.name.endswith(L.LOG_SUFFIX) for file in inputs
    )
