"""An exception in the work on one target becomes its Failure."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from kseg.jobs.events import Event, Failure
from kseg.jobs.guarded import guarded
from kseg.segment.partition.targets import FileTarget

PATH = "/data/orders-0"


@pytest.mark.parametrize("error", [errno.ESTALE, errno.ENOTCONN, errno.EIO])
def test_error_of_the_file_system_is_reported_with_its_reason(error: int) -> None:
    def work(_: FileTarget, __: None) -> Iterator[Event]:
        raise OSError(error, os.strerror(error), PATH)
        yield  # makes it a generator

    (failure,) = guarded(work, FileTarget(PATH), None)
    assert isinstance(failure, Failure)
    assert failure.sentence == f"cannot read {PATH}: {os.strerror(error)}"
    assert failure.exit_status == 3
