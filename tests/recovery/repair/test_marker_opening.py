"""The journal that contains the clean-shutdown marker of a run that was killed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kseg.recovery.repair.log_dir import opening_of
from kseg.segment.errors import UnreadableInput


def test_unlistable_directory_may_have_a_clean_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kseg used to treat a directory that cannot be listed as one that never had a marker."""
    assert opening_of(str(tmp_path)) is None

    def failing(_path: object) -> list[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", failing)
        with pytest.raises(UnreadableInput, match="Input/output error"):
            opening_of(str(tmp_path))
