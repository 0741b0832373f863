"""One step of `kseg doctor`."""

from kseg.segment.values import dataclass

_CHANGING = ("mv", "rmdir", "sed")
_CHANGING_COMMANDS = ("undo", "recover", "retain")


@dataclass(frozen=True, slots=True)
class NextStep:
    """why: what the step is for, in a sentence or two. command: ready to paste. is_due: False if nothing is wrong, only suspicious or
    untidy."""

    why: str
    command: str
    is_due: bool = True

    @property
    def needs_stopped_broker(self) -> bool:
        """Whether it changes a data directory, or plans a change of it."""
        words = self.command.split()
        return words[0] in _CHANGING or (words[0] == "kseg" and words[1] in _CHANGING_COMMANDS)
