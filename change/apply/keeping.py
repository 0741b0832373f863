"""The places for a run's journals and quarantine, as a value that is passed with its options.

A disk that is unmounted during a run leaves its mount point behind, an empty directory of another file system. What is written there is
out of sight once the disk is mounted again, and what is on the disk until then: such a run could not be undone at any time. So a run with
`on_devices` refuses to change anything more.
"""

import os
from dataclasses import replace

from kseg.segment.errors import Refused, disk_words
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class Keeping:
    """The directories of --journal and --quarantine (module elsewhere); None: beside the changed files. devices: the file systems of these
    directories when the run began, None for one that could not be determined; empty if they are not to be compared."""

    journal_dir: str | None = None
    quarantine: str | None = None
    devices: tuple[int | None, ...] = ()

    def on_devices(self) -> "Keeping":
        """The same with the file systems as they are now. Not for work on several machines, which number their devices differently."""
        devices: list[int | None] = []
        for path in self._directories():
            try:
                devices.append(_device_of(path))
            except OSError:  # what needs the directory reports it
                devices.append(None)
        return replace(self, devices=tuple(devices))

    def refuse_moved(self) -> None:
        """Raises Refused if one of the directories is on another file system than when the run began."""
        for path, device in zip(self._directories(), self.devices, strict=False):
            try:
                is_moved = device is not None and _device_of(path) != device
            except OSError as error:
                raise Refused(f"{path}: {error.strerror}; nothing was changed{disk_words(error)}") from error
            if is_moved:
                raise Refused(
                    f"{path} is on another file system than when this run began: mount there again what was unmounted, or unmount "
                    "what was mounted; nothing was changed"
                )

    def _directories(self) -> list[str]:
        return [path for path in (self.journal_dir, self.quarantine) if path is not None]


BESIDE = Keeping()
DECIDED = Keeping("", "")  # the places can no longer be chosen


def _device_of(path: str) -> int:
    """The file system of a directory, or that of the directory in which it will be created."""
    path = os.path.realpath(path)
    while path != os.path.dirname(path) and not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.stat(os.path.join(path, os.curdir)).st_dev  # the last part makes an automounter mount it
