"""`kseg read`: what a broker's fetch would return."""

from collections.abc import Iterator
from typing import Annotated

from kseg.cli.decoders import ConnectTopics, ShowSecrets, redactor_for, row_decoder
from kseg.cli.option_schema import RUN, Option
from kseg.cli.options import BytesMode, CommonOptions, Json, NoNow, Paths, int_size_option, offset_option
from kseg.cli.payload_formats import PayloadFormats, decoding
from kseg.inspection.query import FRAMINGS, ReadQuery
from kseg.jobs.events import Event, Text
from kseg.segment.errors import UsageError

EXAMPLES = (
    ("The batches from an offset on, at most 64 KiB of them", "kseg read --offset 1234567 --max-bytes 64KiB orders-0"),
    ("The same as the bytes a consumer would be sent", "kseg read --offset 1234567 --raw orders-0 > fetched.bin"),
    ("A fetch of Kafka 0.7, with its frame", "kseg read --offset 0 --max-bytes 300KiB --framing message-set --raw orders-0"),
)  # fmt: skip


def command(
    *,
    paths: Paths,
    offset: Annotated[int, offset_option("Start at the batch that contains this offset, else the next one.")],
    max_bytes: Annotated[int, int_size_option("Read at most this many bytes, in complete batches.")] = 1024
    * 1024,
    max_message_bytes: Annotated[
        int, int_size_option("Upper limit for doubling --max-bytes until a complete message fits.")
    ] = 64 * 1024 * 1024,
    no_grow: Annotated[
        bool,
        Option(
            help="Do not double --max-bytes; a first message that is larger may be cut, as by a 0.7 broker."
        ),
    ] = False,
    raw: Annotated[bool, Option(help="Write the bytes themselves to stdout.")] = False,
    framing: Annotated[
        str,
        Option(
            choices=FRAMINGS,
            help="Write the bytes in the frame of a 0.7 fetch response: MessageSetSend of one PATH, MultiMessageSetSend of several.",
        ),
    ] = "none",
    no_index: Annotated[bool, Option(help="Scan instead of trusting the indexes.", panel=RUN)] = False,
    json: Json = False,
    bytes_mode: BytesMode = "auto",
    show_secrets: ShowSecrets = False,
    payloads: PayloadFormats,
    connect_topics: ConnectTopics = (),
    common: CommonOptions,
    now: NoNow = None,
) -> int:
    """Read what a broker's fetch would return: whole batches from the one that contains an offset.

    When not even one message fits into --max-bytes, that size is doubled until one does, up to
    --max-message-bytes. With --raw the bytes go to stdout, otherwise the records.
    """  # fmt: skip
    payloads.refuse_with(bytes_mode)
    if payloads.is_asked and (raw or framing != "none"):
        raise UsageError(
            "--key-format and --value-format show records; --raw and --framing write the bytes themselves"
        )
    from kseg.cli.render import Style
    from kseg.cli.run import over_targets
    from kseg.cli.text.common import read_words
    from kseg.inspection.fetch import read
    from kseg.segment.partition.targets import Expansion

    query = ReadQuery(
        offset=offset,
        max_bytes=max_bytes,
        max_message_bytes=max_message_bytes,
        grow=not no_grow,
        raw=raw,
        framing=framing,
        use_index=not no_index,
        bytes_mode=bytes_mode,
        row_decoder=row_decoder(
            bytes_mode=bytes_mode, show_secrets=show_secrets, connect_topics=connect_topics
        ),
        redactor=redactor_for((), show_secrets=show_secrets, connect_topics=connect_topics),
    )
    style = Style(command="read", json=json, **common.shown(), words=read_words, raw=raw)
    return over_targets(
        read,
        query,
        style,
        expand=Expansion.PARTITIONS,
        request=common.request(paths),
        jobs=common.jobs,
        through=_multi if framing == "multi" else None,
        look=decoding(payloads, paths, "read", common.quiet),
    )


def _multi(events: Iterator[Event]) -> Iterator[Event]:
    """The responses of all targets in one MultiMessageSetSend, whose frame begins with their total size."""
    from kseg.segment.kafka07.fetch_response import multi_message_set_send

    parts: list[bytes] = []
    for event in events:
        if isinstance(event, Text):
            parts.append(bytes(event.data))
        else:
            yield event
    yield Text(multi_message_set_send(parts))
