"""The places for a run's journals and quarantine, as a value that is passed with its options."""

from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class Keeping:
    """The directories of --journal and --quarantine (module elsewhere); None: beside the changed files."""

    journal_dir: str | None = None
    quarantine: str | None = None


BESIDE = Keeping()
DECIDED = Keeping("", "")  # the places can no longer be chosen
