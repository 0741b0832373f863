"""The paths of a command line, in which a shell's `data/*` becomes `data`.

That pattern is a list of everything in a data directory except its hidden files, the clean-shutdown marker among them. Taken literally,
the checkpoints in it are no logs, and nothing checks or repairs what belongs to the data directory as a whole.
"""

import os
from collections.abc import Sequence

from kseg.segment.partition.names import is_of_log_directory
from kseg.segment.storage import places


def without_globs(paths: Sequence[str]) -> tuple[str, ...]:
    """The paths, with a data directory in place of everything in it, where its files and all else that a pattern finds there are given."""
    around = {os.path.dirname(path) for path in paths if is_of_log_directory(os.path.basename(path))}
    given = {*paths}
    whole = {
        folder for folder in around if not places.is_elsewhere(folder) and _found_by_pattern(folder) <= given
    }
    return tuple(dict.fromkeys(_in_place_of(path, whole) for path in paths))


def _found_by_pattern(folder: str) -> set[str]:
    """What `folder/*` finds."""
    try:
        names = places.listdir(folder or os.curdir)
    except OSError:
        return {folder}  # not among the paths below it
    return {os.path.join(folder, name) for name in names if not name.startswith(".")}


def _in_place_of(path: str, whole: set[str]) -> str:
    folder = os.path.dirname(path)
    return (folder or os.curdir) if folder in whole else path
