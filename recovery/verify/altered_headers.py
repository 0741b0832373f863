"""Find altered base offsets and leader epochs of one log, for `dump` and `lookup` (`inspection.header_findings` decides when)."""

import os
from collections.abc import Iterator
from dataclasses import replace

from kseg.segment.findings import Finding


def header_findings(path: str, base_offset: int, start: int, stop: int | None) -> Iterator[Finding]:
    """The findings of `verify` about the headers of the batches between two positions. Raises UnreadableInput."""
    from kseg.recovery.verify.header_verdicts import check_headers  # few logs need it

    full = path if os.path.dirname(path) else os.path.join(os.curdir, path)
    for finding in check_headers(full, base_offset, start, stop).findings:
        if finding.path == full:
            yield replace(finding, path=path)
