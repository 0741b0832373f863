"""Verdicts on directories of a running broker that disagree with the metadata log, checked again once the broker has had time to finish.

A broker first writes or reads a record of the metadata log, and then changes its directories: it creates one, writes partition.metadata
into it, or renames it. So a doubtful verdict stands only if the same directory, with the same topic id, gets it in two checks, and the
metadata log of the second one was read after the first. A topic that is deleted and recreated under the same name has another directory
each time. The pauses grow, since a broker is slow on a busy machine.
"""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from kseg.change.apply.running_broker import READINGS, SETTLING_S
from kseg.internal_topics.metadata.metadata_finder import read_again
from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.internal_topics.metadata.replica_directories import topic_id_of
from kseg.segment.storage import places

V = TypeVar("V")


def settled(
    doubtful: Mapping[str, MetadataImage],
    judge: Callable[[str, MetadataImage], V],
    is_doubtful: Callable[[V], bool],
) -> dict[str, V]:
    """The verdicts on directories by path, without those that are gone or were replaced each time. doubtful: the directories that have a
    doubtful verdict with this image."""
    looked = {path: _incarnation(path) for path in doubtful}
    waiting, found = list(doubtful), dict[str, V]()
    for number in range(1, READINGS):
        if not waiting:
            break
        time.sleep(SETTLING_S * number)
        images: dict[str, MetadataImage] = {}
        for path in tuple(waiting):
            before, looked[path] = looked[path], _incarnation(path)
            found.pop(path, None)
            if looked[path] is None:
                waiting.remove(path)
                continue
            image = doubtful[path]
            if image.path not in images:
                images[image.path] = read_again(image)
            verdict = judge(path, images[image.path])
            if not is_doubtful(verdict):
                waiting.remove(path)
            if path not in waiting or looked[path] == before:
                found[path] = verdict
    return found


def _incarnation(path: str) -> tuple[int, bool, str | None] | None:
    """What distinguishes a directory from an earlier one of the same name; None if it is gone."""
    try:
        inode = places.stat(path).st_ino
    except OSError:
        return None
    has_file, topic_id, _ = topic_id_of(path)
    return inode, has_file, topic_id
