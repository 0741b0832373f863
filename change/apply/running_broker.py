"""What a reader asks about the data of a running broker: whether a broker is running on it, and whether a target was deleted in the
meantime."""

from kseg.segment.counted import counted
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import Target, log_dirs_around
from kseg.segment.storage import places

CHANGED = "changed-while-read"
# How often a target whose files change is read, and the pause after the first reading; later ones are multiples of it. It is longer than
# a broker takes on a busy machine between two renames that belong together.
READINGS = 4
PAUSE_S = 0.2
# The time that a running broker is given to do in its log dirs what the metadata log says: to create, rename and delete directories.
SETTLING_S = 0.5


def is_in_use(target: Target) -> bool:
    """Whether a broker, or another kseg, holds the lock of the data directory of the target."""
    from kseg.change.apply.lock import is_locked

    return any(map(is_locked, log_dirs_around(target)))


def was_deleted(target: Target) -> Finding | None:
    """The finding for a target that no longer exists; None for any other."""
    if places.lexists(target.path):
        return None
    return Finding(CHANGED, target.path, "the broker deleted or renamed this after it was listed")


Place = tuple[str, str, int | None, int | None, int | None]


def place_of(finding: Finding) -> Place:
    """What two readings must agree on for a finding to concern the data on disk, and not a change between the readings."""
    return finding.id, finding.path, finding.position, finding.first_offset, finding.last_offset


def left_out(target: Target, findings: int, readings: int) -> Finding:
    """The note about findings that only one of several readings had."""
    only = f"{counted(findings, 'finding')} of only one of {readings} readings"
    return Finding(CHANGED, target.path, f"the broker changed these files meanwhile; left out: {only}")
