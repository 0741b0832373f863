"""The steps for a metadata log that a broker cannot begin with, and for one that is not among the data directories.

A node loads the newest snapshot of `__cluster_metadata-0` and fails on a damaged one; it does not try an older one (Kafka:
KafkaRaftClient, observed with 4.3.1). Without it the node begins with the one before, or with the log, if these reach back. Where they do
not, the log has to come from another node. A data directory of a KRaft node without a metadata log near it is either one of several,
or the node's metadata is lost.
"""

import os
from collections.abc import Callable, Iterator, Sequence

from kseg.cli.doctor.next_step import NextStep
from kseg.internal_topics.metadata.metadata_log_files import log_files
from kseg.segment.partition.log_dir_state import KRAFT_VERSION, read_log_dir_state
from kseg.segment.partition.names import METADATA_DIRECTORY, Role, parse_file_name
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shown_path


def is_metadata_snapshot(path: str) -> bool:
    """Whether a path is that of a KRaft snapshot in the directory of the metadata log."""
    directory, entry = os.path.split(path)
    if os.path.basename(directory) != METADATA_DIRECTORY:
        return False
    name = parse_file_name(entry)
    return name.role is Role.METADATA_SNAPSHOT and name.is_live


def snapshot_steps(damaged: Sequence[str], move: Callable[[str], str]) -> Iterator[NextStep]:
    """One for each damaged snapshot, or for the directory where the log does not reach back without it. move: the command that moves
    a path out of the data directory."""
    for directory in dict.fromkeys(map(os.path.dirname, damaged)):
        here = [path for path in damaged if os.path.dirname(path) == directory]
        if _reaches_back(directory, here):
            for path in here:
                yield NextStep(
                    f"A broker fails on the damaged snapshot {shown_path(os.path.basename(path))} of the metadata log, and no repair brings it back. The log "
                    "reaches back far enough without it: with the broker stopped, move it out of the data directory.",
                    move(path),
                )
        else:
            yield NextStep(
                "A broker fails on the damaged snapshot of the metadata log, and without it the log does not reach back. Copy __cluster_metadata-0 of another "
                "controller or broker to this place, or let this node fetch it: with the broker stopped, and only if a majority of the other "
                "controllers runs, move it out of the data directory.",
                move(directory),
            )


def gap_steps(directories: Sequence[str], move: Callable[[str], str]) -> Iterator[NextStep]:
    """For metadata logs with a gap: a broker cuts such a log there, and what was created after it becomes stray; with the damaged batches taken out,
    it fails on the first record that refers to a lost one, if there is one."""
    for directory in dict.fromkeys(directories):
        yield NextStep(
            "The metadata log has lost records that no snapshot has, and no repair brings them back (`kseg recover` leaves it as it is: a broker fails on what is left, "
            "or, beside other controllers, never fetches what is lost): with the broker stopped, move it out of the data directory. Do not start a node that is the only controller: it sets everything aside as stray.",
            move(directory),
        )
        yield copied_log(os.path.dirname(directory))


def copied_log(log_dir: str, is_due: bool = True) -> NextStep:
    """Its quorum-state is that of the node that it comes from; a node with a wrong one elects or finds the leader in another epoch."""
    return NextStep(
        f"Copy {METADATA_DIRECTORY} of another controller or broker, or from a backup, to this place (PATH is where you have it). Where a majority of the other controllers runs, "
        "the node can be started without one instead: it fetches it.",
        f"cp -r PATH/{METADATA_DIRECTORY} {shell_quoted(log_dir)}/",
        is_due,
    )


def _reaches_back(directory: str, damaged: Sequence[str]) -> bool:
    names = [parse_file_name(name) for name in places.listdir(directory)]
    files = log_files(directory, names, is_alone=False, with_deleted=False)
    if not files.segments:
        return False
    start = files.segments[0][0]
    return start == 0 or any(
        snapshot.end_offset >= start for snapshot in files.snapshots if snapshot.path not in damaged
    )


def lacks_metadata_log(log_dirs: Sequence[str]) -> bool:
    """Whether these are data directories of a KRaft node, and none of them has the metadata log."""
    return any(read_log_dir_state(log_dir).meta_version == KRAFT_VERSION for log_dir in log_dirs) and not any(
        places.isdir(os.path.join(log_dir, METADATA_DIRECTORY)) for log_dir in log_dirs
    )


def find_metadata_log() -> NextStep:
    """Where nothing else is wrong this may be all there is to say: the metadata log is in one data directory of several."""
    return NextStep(
        f"Which partitions belong here says {METADATA_DIRECTORY}, which is in none of these directories: name the data directory that has it too (metadata.log.dir, else "
        "the first of log.dirs). If it is lost, put it back before a broker starts: a node that is also a controller begins with an empty one and sets "
        "every partition aside as stray; one that is only a broker fetches it from the controllers.",
        f"find / -type d -name '{METADATA_DIRECTORY}*' -not -empty",
        is_due=False,
    )
