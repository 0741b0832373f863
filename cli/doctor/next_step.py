"""One step of `kseg doctor`."""

from collections.abc import Iterator

from kseg.segment.counted import counted
from kseg.segment.values import dataclass

_CHANGING = ("mv", "rmdir", "sed", "chown")
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


def likewise(more: int, what: str, command: str, then: str = "list them") -> Iterator[NextStep]:
    """The step for further cases of the same kind, which get none of their own; nothing if there are none."""
    if more > 0:
        yield NextStep(f"Likewise for {counted(more, f'more {what}')}: {then}.", command)
