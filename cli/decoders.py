"""Choose the decoder that the flags of `dump` request. As in kafka-dump-log.sh, the first topic in its order wins; others are ignored."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from kseg.cli.option_schema import PAYLOADS, Option
from kseg.segment.errors import UsageError

if TYPE_CHECKING:
    from kseg.internal_topics.topic_recognition import TopicRows
    from kseg.segment.json_rows import RowDecoder
    from kseg.segment.record_decoder import RecordDecoder
    from kseg.segment.redaction import Redactor

ShowSecrets = Annotated[
    bool,
    Option(
        help="Show passwords and other secrets in records. These are SCRAM credentials and sensitive configurations of the "
        "metadata log, and settings of Kafka Connect connectors whose name suggests a secret."
    ),
]

ConnectTopics = Annotated[
    tuple[str, ...],
    Option(
        "--connect-topic",
        metavar="GLOB",
        help="Also decode these topics as those of Kafka Connect; may be repeated. For workers whose topics for offsets, configs "
        "and status are not named connect-offsets, connect-configs and connect-status.",
        panel=PAYLOADS,
    ),
]

STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"


def chosen_decoder(
    topics: Sequence[str], key_class: str | None, value_class: str | None
) -> "RecordDecoder | None":
    """The decoder of the requested options; None if they amount to plain text, which a dump shows without a decoder.

    topics: the requested topic decoders, in the tool's order. key_class, value_class: ignored if there is a topic decoder.
    Raises UsageError for a class that kseg does not have.
    """
    if topics:
        from kseg.internal_topics.record_text import TopicText
        from kseg.internal_topics.topic_names import TOPICS

        return TopicText(TOPICS[topics[0]])
    if {key_class, value_class} <= {None, STRING_DECODER}:
        return None
    from kseg.internal_topics.shipped_decoders import PlainText, check_decoder_class

    classes = (key_class or STRING_DECODER, value_class or STRING_DECODER)
    for name in classes:
        check_decoder_class(name)
    return PlainText(*classes)


def row_decoder(
    topics: Sequence[str] = (),
    *,
    is_plain: bool = False,
    bytes_mode: str,
    show_secrets: bool,
    connect_topics: tuple[str, ...] = (),
) -> "TopicRows":
    """The decoder of rows of Kafka's own topics, of Kafka Connect's, and of MirrorMaker's.

    topics: the requested decoders; without any, logs are recognised by their topic, unless `is_plain` or a bytes mode is set.
    connect_topics: further names of Connect's topics.
    """
    from kseg.internal_topics.connect_topics import ConnectRows
    from kseg.internal_topics.mirror_topics import MirrorRows
    from kseg.internal_topics.topic_names import TOPICS
    from kseg.internal_topics.topic_recognition import TopicRows

    topic = TOPICS[topics[0]] if topics else None
    as_bytes = topic is None and (is_plain or bytes_mode != "auto")
    connect = ConnectRows(connect_topics, as_bytes, MirrorRows(as_bytes))
    redactor = redactor_for(topics, show_secrets=show_secrets, connect_topics=connect_topics)
    return TopicRows(topic, as_bytes, redactor, connect if topic is None else None)


def redactor_for(
    topics: Sequence[str], *, show_secrets: bool, connect_topics: tuple[str, ...] = ()
) -> "Redactor | None":
    """The redactor of secrets in the output, None with --show-secrets. topics, connect_topics: as for `row_decoder`."""
    if show_secrets:
        return None
    from kseg.internal_topics.secret_values import SecretValues
    from kseg.internal_topics.topic_names import TOPICS

    return SecretValues(TOPICS[topics[0]] if topics else None, connect_topics)


def with_payloads(rows: "TopicRows", payloads: "RowDecoder") -> "TopicRows":
    """The same, extended by a decoder for the records of all other topics."""
    from kseg.internal_topics.connect_topics import ConnectRows
    from kseg.internal_topics.mirror_topics import MirrorRows

    connect = rows.otherwise
    if not isinstance(connect, ConnectRows):
        return replace(rows, otherwise=payloads)
    mirror = MirrorRows(connect.as_bytes, payloads)
    return replace(rows, otherwise=replace(connect, otherwise=mirror))


def refuse_classes(key_class: str | None, value_class: str | None) -> None:
    """Raises UsageError for decoder classes combined with rows (--json, --format table), which have their own options for this."""
    if {key_class, value_class} - {None, STRING_DECODER}:
        raise UsageError(
            "--key-decoder-class and --value-decoder-class are for the text of kafka-dump-log.sh; with --json and --format table "
            "use --key-format and --value-format (integer, long)"
        )
