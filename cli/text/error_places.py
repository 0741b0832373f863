"""Where the errors of a run are, for the verdicts of `verify` and `doctor`: partitions that no longer have a directory count, too."""

from kseg.segment.counted import counted
from kseg.segment.diagnosis import MissingReplica, ReplicaBehind
from kseg.segment.findings import ERROR, Finding
from kseg.segment.storage import places


class ErrorPlaces:
    """partitions: those examined. damaged: those of them with an error in their files."""

    def __init__(self) -> None:
        self.partitions = 0
        self.damaged = 0
        self._missing = 0
        self._behind = 0
        self._errors = 0  # errors of the partitions that are counted here

    def finding(self, finding: Finding) -> None:
        about = finding.diagnosis
        if finding.severity != ERROR or not isinstance(about, MissingReplica | ReplicaBehind):
            return
        self._errors += 1
        if isinstance(about, MissingReplica) or not places.lexists(finding.path):
            self._missing += 1
        else:
            self._behind += 1

    def add_damaged(self, errors: int) -> None:
        """A partition with this number of errors in its files."""
        self.damaged += 1
        self._errors += errors

    def words(self, errors: int) -> str:
        """` in 1 of 8 partitions and in 2 that are missing`; empty if none is known to be in a partition. errors: of the run."""
        found = [f"{self.damaged:,} of {counted(self.partitions, 'partition')}"] if self.damaged else []
        for number, one, several in (
            (self._missing, "is missing", "are missing"),
            (self._behind, "lacks records", "lack records"),
        ):
            what = f"{number:,}" if found else counted(number, "partition")
            if number:
                found.append(f"{what} that {one if number == 1 else several}")
        others = ", and elsewhere" if found and errors > self._errors else ""
        return f" in {' and in '.join(found)}{others}" if found else ""
