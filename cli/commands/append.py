"""`kseg append`: JSON lines become batches at the end of a partition, the way a broker writes them."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from kseg.cli.change_options import InPlaceOptions
from kseg.cli.option_schema import INPUT, Argument, Option
from kseg.cli.options import (
    Json,
    NoJobs,
    NoProgress,
    Now,
    Quiet,
    count_option,
    duration_option,
    epoch_option,
    int_size_option,
    offset_option,
    read_offsets,
    refuse_read_only,
)
from kseg.cli.run_summary import RunSummary
from kseg.cli.streams import complain
from kseg.cli.text.plan_words import undo_words
from kseg.jobs.events import Event, Row
from kseg.segment.counted import counted
from kseg.segment.errors import UsageError
from kseg.segment.layout import CODEC_NAMES
from kseg.segment.terminal import shown_path

EXAMPLES = (
    ("Check all lines, and show what would be written", "kseg append --from events.jsonl events-3"),
    ("Make a partition from the output of dump --json --deep-iteration, from a file or a pipe", "kseg append --apply --from - copy-0"),
    ("Your own records, compressed", "kseg append --apply --from events.jsonl --codec zstd /var/lib/kafka/events-3"),
    ("A transaction of an idempotent producer", "kseg append --apply --from events.jsonl --producer-id 4000 --transactional events-3"),
    ("The marker of a transaction whose commit was lost with the end of a log", "kseg append --apply --marker commit --producer-id 4000 events-3"),
    ("A partition for a topic that a broker knows", "kseg append --apply --from events.jsonl --topic-id Pm0fXkDvQ0yTn7Qq3uXJ8A events-3"),
    ("A partition of Kafka 0.7", "kseg append --apply --from events.jsonl --format 0.7 --segment-bytes 512MiB old-0"),
)  # fmt: skip

BATCHES = "Batches (of records without a batch line)"
ROLLS = "Rolling and flushing"

BATCH_BYTES = 16384


def command(
    *,
    paths: Annotated[
        tuple[str, ...],
        Argument(
            "PATH", help="The partition directory; created if missing (its name must be topic-partition)."
        ),
    ],
    source: Annotated[
        str | None,
        Option(
            "--from",
            metavar="FILE",
            help="The JSON lines; - is standard input. With --apply a pipe is kept in $TMPDIR (or /var/tmp) until all of it is checked.",
            panel=INPUT,
        ),
    ] = None,
    marker: Annotated[
        str | None,
        Option(
            choices=("commit", "abort"),
            help=(
                "Instead of lines: the marker that ends the open transaction of --producer-id, as its transaction coordinator writes it. Default "
                "of --producer-epoch: that of its last batch; the second transaction protocol (since 4.0) gives a marker the next one."
            ),
            panel=INPUT,
        ),
    ] = None,
    keep_offsets: Annotated[
        bool | None,
        Option(
            help=(
                "Whether to keep the offsets of the lines; otherwise numbering continues at the log "
                "end. Default: keep them where a line has one."
            ),
            panel=INPUT,
        ),
    ] = None,
    dumps: Annotated[
        int | None,
        count_option(
            "The lines are the output of this many runs of dump --json, each of which must be complete: append nothing if one failed, was "
            "killed, or lacks what it could not read and no other has.",
            INPUT,
        ),
    ] = None,
    lost: Annotated[
        tuple[range, ...],
        Option(
            metavar="FIRST-LAST",
            help="Offsets that none of the --dumps has: append what there is without them. May be repeated.",
            panel=INPUT,
            read=read_offsets,
        ),
    ] = (),
    leave_out: Annotated[
        tuple[range, ...],
        Option(
            metavar="FIRST-LAST",
            help="Leave out the records at these offsets, such as one that no consumer can read. May be repeated.",
            panel=INPUT,
            read=read_offsets,
        ),
    ] = (),
    partial_batches: Annotated[
        bool,
        Option(
            help="Accept batch lines with fewer records than their count, as in a filtered dump.", panel=INPUT
        ),
    ] = False,
    format: Annotated[
        str,
        Option(
            choices=("auto", "0.7"),
            help="Kafka version of a new partition; an existing one keeps its format.",
        ),
    ] = "auto",
    topic_id: Annotated[
        str | None, Option(metavar="UUID", help="Write partition.metadata with this id into a new partition.")
    ] = None,
    start_offset: Annotated[
        int | None, offset_option("Start offset of a new partition. Default: the first offset of the lines.")
    ] = None,
    codec: Annotated[
        str | None,
        Option(
            choices=CODEC_NAMES,
            help="Compression of the batches. Default: what their line has, else the topic's compression.type, else none.",
        ),
    ] = None,
    leader_epoch: Annotated[
        int | None,
        epoch_option(
            "Leader epoch of all batches. Default: what their line has, else the latest of the log."
        ),
    ] = None,
    magic: Annotated[
        str, Option(choices=("0", "1", "2"), help="Message format of the batches.", panel=BATCHES)
    ] = "2",
    batch_records: Annotated[
        int | None, count_option("At most this many records per batch.", BATCHES)
    ] = None,
    batch_bytes: Annotated[
        int, int_size_option("At most this many bytes per batch, before compression.", BATCHES)
    ] = BATCH_BYTES,
    producer_id: Annotated[
        int,
        Option(
            metavar="N", help="Producer id, for batches of an idempotent producer; -1 is none.", panel=BATCHES
        ),
    ] = -1,
    producer_epoch: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Producer epoch. Default: that of the producer in the log, else 0.",
            panel=BATCHES,
        ),
    ] = None,
    base_sequence: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Sequence number of the first record. Default: the next one of the producer in the log, else 0.",
            panel=BATCHES,
        ),
    ] = None,
    transactional: Annotated[
        bool, Option(help="Write a transaction; needs --producer-id.", panel=BATCHES)
    ] = False,
    end: Annotated[
        str, Option(choices=("commit", "abort", "open"), help="How the transaction ends.", panel=BATCHES)
    ] = "commit",
    segment_bytes: Annotated[
        int | None,
        int_size_option("Kafka's segment.bytes. Default: the topic's configuration, else 1GiB.", ROLLS),
    ] = None,
    segment_ms: Annotated[
        int | None,
        duration_option("Kafka's segment.ms. Default: the topic's configuration, else a week.", ROLLS),
    ] = None,
    segment_index_bytes: Annotated[
        int | None,
        int_size_option(
            "Kafka's segment.index.bytes. Default: the topic's configuration, else 10MiB.", ROLLS
        ),
    ] = None,
    index_interval_bytes: Annotated[
        int | None,
        int_size_option(
            "Kafka's index.interval.bytes. Default: the topic's configuration, else 4096.", ROLLS
        ),
    ] = None,
    flush_messages: Annotated[
        int | None, count_option("Sync the log to disk after every N messages.", ROLLS)
    ] = None,
    flush_ms: Annotated[
        int | None, duration_option("Sync the log to disk after this much time.", ROLLS)
    ] = None,
    in_place: InPlaceOptions,
    json: Json = False,
    now: Now = None,
    jobs: NoJobs = None,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> int:
    """Write JSON-line records as batches at the end of a partition, the way a broker does: the plan first.

    The lines are those of `dump --json --deep-iteration`: a batch line gives the bounds and fields of a batch, the
    record lines after it are its records. Records without a batch line are grouped into batches; only their value
    is required, and they get the time of the append if the topic's message.timestamp.type is LogAppendTime. Segments
    roll, and indexes, snapshots and leader epochs are written as a broker writes them, so that a broker opens the
    result without recovery. A log with damage is refused. All input is checked before the first byte is written: an
    invalid line ends the run with status 2 and changes nothing. The exit status is 1 when records are to be appended
    and were only planned.
    """  # fmt: skip
    refuse_read_only("append", paths)
    if len(paths) != 1:
        raise UsageError("kseg append takes exactly one PATH")
    from kseg.change.append.append import append, append_target
    from kseg.change.append.batching import BatchRules
    from kseg.change.append.flush import FlushRules
    from kseg.change.append.options import AppendOptions
    from kseg.change.append.topic_rules import codec_of, roll_rules, uses_append_time
    from kseg.change.apply.journal_location import new_run_id
    from kseg.cli.change_options import tell_of_read_only
    from kseg.cli.next_command import apply_command, command_line, plan_options
    from kseg.cli.render import Style, show
    from kseg.cli.request import Request
    from kseg.cli.run import clock_ms, notice
    from kseg.cli.topic_evidence import Asked, topic_settings
    from kseg.jobs import fanout
    from kseg.segment.mounts import is_read_only
    from kseg.segment.partition.topic_settings import TopicSettings

    plan = plan_options("append", locals())
    rolls = {
        "segment_bytes": segment_bytes,
        "segment_ms": segment_ms,
        "segment_index_bytes": segment_index_bytes,
        "index_interval_bytes": index_interval_bytes,
    }
    target = append_target(paths[0])
    topic = topic_settings([target], Asked())[0].get(target.path, TopicSettings())
    options = AppendOptions(
        source=source,
        apply=in_place.apply,
        accept_unreadable=in_place.accept_unreadable,
        keeping=in_place.keeping().on_devices(),
        run_id=new_run_id(clock_ms()),
        follow_links=in_place.follow_links,
        batches=BatchRules(
            now_ms=clock_ms(now),
            codec=None if codec is None else CODEC_NAMES.index(codec),
            leader_epoch=leader_epoch,
            keep_offsets=keep_offsets,
            partial_batches=partial_batches,
            leave_out=leave_out,
            magic=int(magic),
            batch_records=batch_records,
            batch_bytes=batch_bytes,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
            end_transaction=end,
            marker=marker,
            topic_codec=codec_of(topic, int(magic)),
            log_append_time=uses_append_time(topic),
        ),
        rolls=roll_rules(topic, rolls),
        flush=FlushRules(flush_messages, flush_ms),
        topic_id=topic_id,
        start_offset=start_offset,
        kafka07=format == "0.7",
        dumps=dumps,
        given_up=lost,
        topic=topic,
    )
    is_stuck = not in_place.apply and is_read_only(target.path)
    request = Request(paths)
    again = command_line("doctor", {}, request) if is_stuck else apply_command("append", plan, request)

    def words(values: Mapping[str, Any]) -> Iterator[str]:
        ending = (
            ""
            if marker is None
            else f"the {marker.upper()} marker of the transaction of producer {producer_id}"
        )
        yield from _words(values, ending)
        if source == "-" and _is_due(values) and not (quiet or is_stuck):
            yield f"next, with the same lines on standard input: {again}"

    style = Style(
        command="append",
        json=json,
        quiet=quiet,
        progress=not no_progress,
        words=words,
        remains=_is_due,
        advice=lambda tally: again if tally.remaining and (source != "-" or is_stuck) else "",
    )
    if is_stuck:
        tell_of_read_only([target], notice(style))
    tally = RunSummary(1, errors_settle=False)
    events = fanout.run(append, [target], options, 1, tally.finish_target)
    inputs = [] if source in (None, "-") else [source]
    return show(_checkpointed(events, quiet), style, inputs, tally)


def _is_due(values: Mapping[str, Any]) -> bool:
    """Whether there are records to append that were only planned."""
    return not values["applied"] and bool(values["batches"] or values["is_new"])


def _words(values: Mapping[str, Any], marker: str) -> Iterator[str]:
    """What was or would be appended, and how to undo it. marker: which one, if only a marker is appended."""
    name = shown_path(str(values["partition"]))
    if not values["batches"] and not values["is_new"]:
        yield f"{name}: nothing to append; the log ends at {values['log_end_offset']}"
        return
    what = "to be appended" if _is_due(values) else "appended"
    end = "the log would end" if _is_due(values) else "the log ends"
    content = f"{counted(values['records'], 'record')} in {counted(values['batches'], 'batch')}"
    if marker:
        content = f"{marker} from offset {values['transaction_start_offset']}"
    yield (
        f"{name}{' (new)' if values['is_new'] else ''}: {content} "
        f"({counted(values['bytes'], 'byte')}) {what} at offset {values['first_offset']}; "
        f"{end} at {values['log_end_offset']}, {counted(values['segments_rolled'], 'segment')} rolled"
    )
    if replaced := values["timestamps_replaced"]:
        verb = "would become" if _is_due(values) else "became"
        when = "the time of the append, since message.timestamp.type of the topic is LogAppendTime"
        yield f"  {counted(replaced, 'timestamp')} {verb} {when}"
    if values["is_new"] and values["becomes_stray"]:
        yield "  without --topic-id a broker (KRaft, 3.7+) sets it aside as stray, and creates an empty partition instead"
    yield from undo_words(values)


def _checkpointed(events: Iterator[Event], quiet: bool) -> Iterator[Event]:
    """Pass the events on, and print on stderr which lines of the input were ignored."""
    from kseg.change.append.append_job import AppendResult

    for event in events:
        if isinstance(event, Row) and isinstance(event.result, AppendResult) and not quiet:
            ignored = [
                counted(count, f"{kind} line")
                for kind, count in event.result.lines_ignored.items()
                if kind != "summary"
            ]
            if event.result.batches_left_out:
                ignored.append(f"damaged batches: {event.result.batches_left_out}")
            if ignored:
                complain(f"kseg append: ignored {', '.join(ignored)}")
        yield event
