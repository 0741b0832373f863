"""The option types and options that several commands share."""

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypedDict

from kseg.cli.option_schema import CLUSTER, FILTER, INPUT, RESULT, RUN, Argument, Option, read_number
from kseg.cli.streams import complain
from kseg.segment.errors import Refused, UsageError
from kseg.segment.layout import INT32_MAX, INT64_MAX
from kseg.segment.moments import moment
from kseg.segment.quantities import read_duration, read_size, read_time

if TYPE_CHECKING:
    from kseg.cli.request import Request
    from kseg.recovery.verify.options import VerifyOptions
    from kseg.spark.options import ClusterOptions

# outside these, a number of milliseconds is more likely one of seconds or of microseconds
_EPOCH_MS_OF_1973 = 10**11
_EPOCH_MS_OF_5138 = 10**14


def read_size_of_int(text: str) -> int:
    """A size that Kafka keeps in 32 bits."""
    size = read_size(text)
    if size > INT32_MAX:
        raise ValueError(f"takes at most {INT32_MAX} bytes")
    return size


def read_count(text: str) -> int:
    return _whole(text, 1, INT64_MAX, "takes a whole number from 1")


def read_offset(text: str) -> int:
    return _whole(text, 0, INT64_MAX, "takes an offset, a whole number from 0")


def read_offsets(text: str) -> range:
    """The first and the last one of several offsets."""
    first, dash, last = text.partition("-")
    if dash and first.isdecimal() and last.isdecimal() and int(first) <= int(last) < INT64_MAX:
        return range(int(first), int(last) + 1)
    raise ValueError("takes the first and the last offset, such as 300-359")


def read_partition(text: str) -> int:
    """A partition number as it appears in directory names."""
    return _whole(text, 0, INT32_MAX, "takes a partition number")


def read_node(text: str) -> int:
    """The id of a broker or controller, which Kafka keeps in 32 bits."""
    return _whole(text, 0, INT32_MAX, "takes a node id, a whole number from 0")


def read_time_option(text: str) -> int:
    """A time. A number that is probably in another unit than milliseconds is taken as it is, but named: with seconds every record is newer,
    with microseconds every record is older."""
    time_ms = read_time(text)
    if text.isdecimal() and (1_000 <= time_ms < _EPOCH_MS_OF_1973 or time_ms >= _EPOCH_MS_OF_5138):
        when = moment(time_ms) if time_ms < _EPOCH_MS_OF_1973 else "after the year 5137"
        complain(f"kseg: numbers are times in epoch milliseconds: {text} is {when}")
    return time_ms


def read_local_directory(text: str) -> str:
    """A directory to write to: object stores and archives are read, never written."""
    from kseg.segment.storage.attached import is_elsewhere

    if is_elsewhere(text):
        raise ValueError("takes a directory on disk")
    return text


def read_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """See `without_globs`."""
    from kseg.cli.given_paths import without_globs

    return without_globs(paths)


def refuse_read_only(command: str, paths: Sequence[str]) -> None:
    """Raises Refused if a path that a command would change is in an object store or a tar archive."""
    from kseg.segment.storage.attached import is_elsewhere

    for path in paths:
        if is_elsewhere(path):
            raise Refused(
                f"kseg {command} works on directories on disk only, and {path} is in an object store or a tar archive: "
                "copy the directory to a disk first (verify, list, dump, lookup, read and export read it where it is)"
            )


def read_epoch(text: str) -> int:
    """A leader epoch, which Kafka keeps in 32 bits."""
    return _whole(text, 0, INT32_MAX, "takes a leader epoch, a whole number from 0")


def key_bytes(text: str, encoding: str) -> bytes:
    """The bytes of `--key`, decoded according to `--key-encoding`. Raises UsageError."""
    import binascii

    try:
        if encoding == "hex":
            return bytes.fromhex(text)
        if encoding == "base64":
            return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise UsageError(f"--key {text!r} is not {encoding}: {error}") from None
    return os.fsencode(text)


def read_setting(text: str) -> tuple[str, str]:
    """`NAME=VALUE`, as Spark settings are written."""
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise ValueError("takes NAME=VALUE such as spark.executor.memory=2g")
    return name.strip(), value


def read_names(text: str) -> tuple[str, ...]:
    """Names separated by commas, as in spark-submit."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("takes names separated by commas")
    return names


def default_jobs() -> int:
    """The number of CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _whole(text: str, least: int, most: int, complaint: str) -> int:
    try:
        number = read_number(text)
    except ValueError:
        raise ValueError(complaint) from None
    if not least <= number <= most:
        raise ValueError(complaint)
    return number


# --- options by type of value; panel: the heading of the help page under which an option appears


def count_option(help: str, panel: str = RESULT) -> Option:
    return Option(metavar="N", read=read_count, help=help, panel=panel)


def offset_option(help: str, panel: str = RESULT) -> Option:
    return Option(metavar="N", read=read_offset, help=help, panel=panel)


def epoch_option(help: str, panel: str = RESULT) -> Option:
    return Option(metavar="E", read=read_epoch, help=help, panel=panel)


def node_option(help: str, panel: str = RESULT) -> Option:
    return Option(metavar="N", read=read_node, help=help, panel=panel)


def size_option(help: str, panel: str = RESULT) -> Option:
    return Option(metavar="SIZE", read=read_size, help=help, panel=panel)


def int_size_option(help: str, panel: str = RESULT) -> Option:
    return Option(metavar="SIZE", read=read_size_of_int, help=help, panel=panel)


def duration_option(help: str, panel: str = RESULT) -> Option:
    return Option(metavar="DURATION", read=read_duration, help=help, panel=panel)


def time_option(help: str, panel: str = RESULT) -> Option:
    return Option(metavar="TIME", read=read_time_option, help=help, panel=panel)


def directory_option(
    help: str, panel: str = RESULT, read: Callable[[str], str] = read_local_directory
) -> Option:
    return Option(metavar="DIR", read=read, help=help, panel=panel)


Paths = Annotated[
    tuple[str, ...],
    Argument(
        "PATH",
        help="A file of a segment, a checkpoint, a partition directory, a log dir, or a directory above several.",
        read_all=read_paths,
    ),
]
Topics = Annotated[
    tuple[str, ...],
    Option("--topic", metavar="GLOB", help="Only topics whose name matches; may be repeated.", panel=INPUT),
]
Partition = Annotated[
    int | None, Option(metavar="N", read=read_partition, help="Only this partition number.", panel=INPUT)
]
Json = Annotated[
    bool,
    Option(
        help="Print JSON lines on stdout, one object with a type per line; messages for people go to stderr."
    ),
]
Html = Annotated[
    str | None,
    Option(
        metavar="FILE",
        help=(
            "Also write a report for a browser to FILE. The file is self-contained, with tables to sort "
            "and filter. An earlier report is replaced, but no other file."
        ),
    ),
]
Quiet = Annotated[
    bool, Option(help="Print only results and errors. No progress, no notices, no summary.", panel=RUN)
]
Verbose = Annotated[
    bool,
    Option(
        short="-v",
        help="Print every finding and every detail. Default: the first few of each kind.",
        panel=RUN,
    ),
]
NoProgress = Annotated[bool, Option(help="No progress bar (it is shown only on a terminal).", panel=RUN)]
Jobs = Annotated[
    int | None, count_option("Process this many targets in parallel. Default: the number of cores.", RUN)
]
Now = Annotated[
    int | None, time_option("The current time, in epoch milliseconds or ISO 8601. Default: the clock.", RUN)
]
# Every command accepts these, so that a script may pass them to all; if they have no effect, the help says so.
NoNow = Annotated[
    int | None,
    time_option("Accepted by every command; the output of this one does not depend on the time.", RUN),
]
NoJobs = Annotated[
    int | None, count_option("Accepted by every command; this one does not work in parallel.", RUN)
]
DropCache = Annotated[
    bool,
    Option(
        help="After reading, drop the data from the page cache, so that a running broker keeps its own pages.",
        panel=RUN,
    ),
]
Isolation = Annotated[
    str,
    Option(
        choices=("read_uncommitted", "read_committed"),
        help="read_committed omits what a consumer would not see: aborted and open transactions.",
        panel=FILTER,
    ),
]
KeyEncoding = Annotated[
    str, Option(choices=("utf8", "hex", "base64"), help="How the value of --key is written.", panel=FILTER)
]
BytesMode = Annotated[
    str,
    Option(
        "--bytes",
        choices=("auto", "utf8", "hex", "base64", "size", "redacted"),
        help="How keys, values and header values are shown; auto is UTF-8 text where valid, else base64.",
    ),
]


def _names(help: str, metavar: str = "A,B") -> Option:
    return Option(metavar=metavar, read=read_names, help=f"{help} May be repeated.", panel=CLUSTER)


class Shown(TypedDict):
    """The display options of a run, passed to `cli.render.Style`."""

    quiet: bool
    progress: bool


class CommonOptions(NamedTuple):
    """Options of nearly every command: the targets, how many to process in parallel, and what is shown beside the result."""

    topics: Topics = ()
    partition: Partition = None
    jobs: Jobs = None
    quiet: Quiet = False
    no_progress: NoProgress = False

    def request(
        self,
        paths: Sequence[str],
        cluster: "ClusterOptions | None" = None,
        also: Mapping[str, object] | None = None,
    ) -> "Request":
        """The targets of the run, and where they are processed. also: as in `Request`."""
        from kseg.cli.request import Request

        return Request(tuple(paths), self.topics, self.partition, cluster, also or {})

    def shown(self) -> Shown:
        return {"quiet": self.quiet, "progress": not self.no_progress}


class Depth(NamedTuple):
    """How thoroughly `verify` checks each log."""

    quick: Annotated[bool, Option(help="Check only headers, checksums, names and sizes.")] = False
    deep: Annotated[bool, Option(help="Also decompress and decode every record.")] = False

    def options(self, now_ms: int, drop_cache: bool, shapes: bool) -> "VerifyOptions":
        """shapes: as in `VerifyOptions`. Raises UsageError."""
        if self.quick and self.deep:
            raise UsageError("--quick and --deep are mutually exclusive")
        from kseg.recovery.verify.options import VerifyOptions

        return VerifyOptions(
            level="quick" if self.quick else "deep" if self.deep else "default",
            now_ms=now_ms,
            drop_cache=drop_cache,
            shapes=shapes,
        )


class OnCluster(NamedTuple):
    """Where the work runs: here, or on a Spark cluster."""

    spark: Annotated[bool, Option(help="Run on a Spark cluster: same output, same order.", panel=CLUSTER)] = (
        False
    )
    master: Annotated[
        str | None,
        Option(
            metavar="URL",
            help="Address of the cluster, such as spark://host:7077. Default: local[*], Spark on this machine only.",
            panel=CLUSTER,
        ),
    ] = None
    spark_conf: Annotated[
        tuple[tuple[str, str], ...],
        Option(
            metavar="K=V",
            read=read_setting,
            help="A Spark property; may be repeated. spark.log.level=WARN shows Spark's own messages.",
            panel=CLUSTER,
        ),
    ] = ()
    py_files: Annotated[
        tuple[tuple[str, ...], ...], _names("Python files and zips for the nodes, as for spark-submit.")
    ] = ()
    archives: Annotated[
        tuple[tuple[str, ...], ...],
        _names("Archives that nodes unpack, as for spark-submit: a whole environment as FILE#NAME."),
    ] = ()
    jars: Annotated[tuple[tuple[str, ...], ...], _names("Java libraries for the cluster.")] = ()
    packages: Annotated[
        tuple[tuple[str, ...], ...],
        _names("Java libraries by their Maven coordinates.", "GROUP:ARTIFACT:VERSION"),
    ] = ()

    def cluster(self, *, light: bool = False) -> "ClusterOptions | None":
        """The cluster that the options name; None for a run on this machine alone. light: Spark only distributes the work and
        collects the results.

        Raises UsageError if --spark is missing.
        """
        given = {f"--{name.replace('_', '-')}": value for name, value in self._asdict().items()}
        if not given.pop("--spark"):
            stray = [name for name, value in given.items() if value]
            if stray:
                raise UsageError(f"{stray[0]} requires --spark")
            return None
        from kseg.spark.options import LOCAL_MASTER, ClusterOptions

        return ClusterOptions(
            master=self.master or LOCAL_MASTER,
            conf=self.spark_conf,
            py_files=tuple(chain(*self.py_files)),
            archives=tuple(chain(*self.archives)),
            jars=tuple(chain(*self.jars)),
            packages=tuple(chain(*self.packages)),
            light=light,
        )
