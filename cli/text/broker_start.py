"""The text of the forecast of a broker's start."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kseg.cli.text.amounts import rough_duration_words, size_words
from kseg.segment.counted import counted, listed, shown_of
from kseg.segment.terminal import shown_path, visible

Values = Mapping[str, Any]

_SHOWN = 3
VERSION = "4.3.1"
_WORTH_SAYING_S = 10.0


def broker_start_words(values: Values) -> Iterator[str]:
    """The lines for a `broker-start` row: whether the broker starts, then what happens to partitions."""
    yield _verdict(values)
    yield from map(visible, _directories(values))
    if values["once_writable"] is not None:
        where = listed([*map(shown_path, values["read_only"])], _SHOWN)
        yield f"  {where} {'is' if len(values['read_only']) == 1 else 'are'} mounted read-only; once a broker can write there:"
        yield from (f"  {words}" for words in broker_start_words(values["once_writable"]))
        return
    if values["once_apart"] is not None:
        yield "  if the disks of several nodes were only collected here, so that log.dirs has its own data directories only:"
        yield from (f"  {words}" for words in broker_start_words(values["once_apart"]))
        return
    if values["outcome"] == "does-not-start":
        if values["from_zookeeper"]:
            yield (
                "  the last broker here used ZooKeeper, which Kafka 4 does not support; this forecast "
                "is not for a broker of the version that ran here"
            )
        return
    voters = values["voters_awaited"]
    if voters:
        of_several = f"a majority of the controllers (nodes {', '.join(map(str, voters))})"
        words = (
            f"  it serves once {of_several if len(voters) > 1 else f'the controller (node {voters[0]})'} runs"
        )
        if values["metadata_may_be_newer"]:
            words += ", and sets aside what was deleted or moved away while it was down: only the controllers' data directories tell"
        yield words
    offline = values["log_dirs_offline"]
    shown = shown_of(len(offline), _SHOWN)
    for place in offline[:shown]:
        why = visible(f"{place['exception']}: {place['message']}")
        yield f"  it continues without {shown_path(str(place['log_dir']))} ({why})"
    if len(offline) > shown:
        yield f"  it continues without {counted(len(offline) - shown, 'more data directory')}"
    lost = list(_lost(values))
    if lost:
        yield visible(f"  {'; '.join(lost)}")
    aside = list(_aside(values))
    if aside:
        yield visible(f"  {'; '.join(aside)}")
    if _may_set_aside(values):
        yield f"  {_strays_unknown(values)}"
    is_unclean = values["log_dirs_unclean"] or values["outcome"] is None
    if values["bytes_to_scan"] and is_unclean:
        yield f"  it scans {size_words(values['bytes_to_scan'])} of {counted(values['logs_to_scan'], 'log')} first{_time(values)}"
    elif values["estimated_s_slow"] >= _WORTH_SAYING_S:
        yield f"  it loads {counted(values['partitions'], 'log')} first{_time(values)}"


def _directories(values: Values) -> Iterator[str]:
    """The checked directories that log.dirs lacks, and the directories in log.dirs that were not checked."""
    left_out = values["log_dirs_left_out"]
    if left_out:
        verb = "is" if len(left_out) == 1 else "are"
        yield f"  {_listed(left_out)} {verb} not in log.dirs: it loads no log from there"
    if values["log_dirs_unchecked"]:
        yield f"  log.dirs also has {_listed(values['log_dirs_unchecked'])}, whose logs were not checked"


def _verdict(values: Values) -> str:
    whose = "" if values["node_id"] is None else f" on node {values['node_id']}"
    if values["outcome"] is None:
        return f"at its next start a {VERSION} broker loads these partitions:"
    head = f"a {VERSION} broker{whose}"
    if values["outcome"] == "does-not-start":
        return visible(f"{head} does not start: {values['exception']}: {values['message']}")
    if values["outcome"] == "starts-with-offline-log-dirs":
        offline = len(values["log_dirs_offline"])
        return f"{head} starts without {offline} of {counted(len(values['log_dirs']), 'data directory')}"
    if values["partitions_unread"]:
        return f"{head} starts, unless it fails to load what could not be examined"
    if any(values[name] for name in values if name.startswith("partitions_")):
        return f"{head} starts"
    verb = "loads" if _may_set_aside(values) or values["metadata_may_be_newer"] else "keeps"
    return f"{head} starts, and {verb} all of {counted(values['partitions'], 'log')}"


def _may_set_aside(values: Values) -> bool:
    """Whether the broker may set aside more of the loaded partitions as stray than predicted, because it is unknown what the metadata log
    says about them."""
    return bool(values["metadata"] == "unknown" and values["partitions"] and values["outcome"] is not None)


def _strays_unknown(values: Values) -> str:
    if values["from_zookeeper"]:
        return (
            "the last broker here used ZooKeeper, which Kafka 4 does not support: in a KRaft cluster to "
            "which its metadata was not migrated, every log is set aside as stray (a broker of the "
            "version that ran here keeps them)"
        )
    return "without a metadata log it is unknown which of them it sets aside as stray"


def _lost(values: Values) -> Iterator[str]:
    """The losses of a start: truncated logs, and partitions that are not loaded or not served."""
    cut = values["partitions_truncated"]
    if cut:
        yield f"it truncates {_listed(cut, _cut_words)}"
    short = values["partitions_shortened"]
    if short:
        yield f"because of wrong indexes it ends {_listed(short, _short_words)}, and assigns the offsets above to new records"
    failed = values["partitions_failed"]
    if failed:
        yield f"it cannot load {_listed([each['partition'] for each in failed])}"
    if values["partitions_offline"]:
        yield f"it does not serve {_listed(values['partitions_offline'])}"
    leaderless = values["partitions_leaderless"]
    if leaderless:
        it = "it is" if len(leaderless) == 1 else "they are"
        yield f"it may lead {_listed(leaderless)} only after a later election, because {it} assigned to a data directory that it does not have"


def _aside(values: Values) -> Iterator[str]:
    for name, verb in (
        ("partitions_stray", "it sets aside as stray"),
        ("partitions_missing", "it creates empty logs for"),
        ("partitions_removed", "it deletes"),
        ("partitions_future", "it continues to move"),
        ("partitions_promoted", "it switches to the moved logs of"),
        ("partitions_unread", "nothing is known about"),
    ):
        if values[name]:
            yield f"{verb} {_listed(values[name])}"


def _cut_words(row: Values) -> str:
    records = row["records_lost"]
    what = "" if records is None else f"{counted(records, 'record')}, "
    return f"{shown_path(row['partition'])} at offset {row['log_end_offset']} ({what}{counted(row['bytes_lost'], 'byte')})"


def _short_words(row: Values) -> str:
    return f"{shown_path(row['partition'])} at offset {row['log_end_offset']} instead of {row['end_offset_in_files']}"


def _listed(names: Sequence[Any], words: Callable[[Any], str] = shown_path) -> str:
    return listed([*map(words, names[: _SHOWN + 1])], _SHOWN, number=len(names))


def _time(values: Values) -> str:
    fast, slow = map(rough_duration_words, (values["estimated_s"], values["estimated_s_slow"]))
    if fast == slow:
        return f", in about {fast}"
    return f", in {fast} (in memory, an idle machine) to {slow} (a spinning disk, a busy machine)"
