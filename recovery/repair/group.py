"""`recover` for many targets at a time in one process."""

from collections.abc import Iterator

from kseg.recovery.repair.options import RecoverOptions
from kseg.recovery.repair.work import carry_out, prepare
from kseg.segment.apply.together import TargetGroup, work_together
from kseg.segment.events import Event


def recover_group(group: TargetGroup, options: RecoverOptions) -> Iterator[Event]:
    """`recover` for each target of the group; what one raises becomes its Failure and stops no other."""
    yield from work_together(group, options, prepare, carry_out)
