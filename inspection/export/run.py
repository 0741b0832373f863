"""Lifecycle of an `export` over many partitions: create the output folder, collect the files, move them into place.

The rows of the partitions name the files that are complete; those, and no others, are published when the last partition is done.
So an export that was killed, interrupted, or ended by --fail-on-damage leaves the output as it was. Partitions that cannot
be read do not prevent the others from being published; then, as with damage, the marker `_SUCCESS` is not written. If a file
cannot be written (a full disk), nothing is published.
"""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from kseg.inspection.export.options import ExportOptions, Form
from kseg.inspection.export.output_folder import OutputFolder, new_folder
from kseg.inspection.export.to_stdout import STDOUT
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.errors import KsegError, Refused
from kseg.segment.findings import ERROR, Finding
from kseg.segment.partition.target_guards import refuse_inside
from kseg.segment.partition.targets import Target
from kseg.segment.payload_table import PayloadTable

SUMMED = ("files", "records", "bytes", "damaged_bytes")


class DamageFound(KsegError):
    """Damage was found and must end the run (--fail-on-damage)."""

    exit_status = 1


class ExportRun:
    """One run of `export` on this machine. options: the requested ones, with everything known by now."""

    def __init__(self, options: ExportOptions) -> None:
        self.options = options
        self._folder: OutputFolder | None = None

    def decode(self, payloads: PayloadTable) -> ExportOptions:
        """Decode keys and values from now on; returns the new options."""
        self.options = replace(self.options, payloads=payloads)
        return self.options

    @contextmanager
    def held(self, targets: Sequence[Target]) -> Iterator[ExportOptions]:
        """Hold the output folder while the targets are processed; yields the options to work with. Raises Refused."""
        options = self.options
        if options.output == STDOUT:
            self.options = replace(options, first_path=targets[0].path if targets else "")
            yield self.options
            return
        refuse_own_input(options.output, targets)
        run_id = secrets.token_hex(4)
        with new_folder(options.output, options.mode, run_id) as folder:
            self._folder = folder
            self.options = replace(options, folder=folder.path, run_id=run_id)
            yield self.options

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        """Pass on the events of the partitions; after the last one the files are published."""
        names: list[str] = []
        sums = dict.fromkeys(SUMMED, 0)
        failures = damage = 0
        cannot_write = False
        is_stream = self.options.output == STDOUT
        for event in events:
            if not (is_stream and isinstance(event, Row)):
                yield event
            match event:
                case Row(values):
                    files = values["files"]
                    assert isinstance(files, list)
                    names += files
                    sums["files"] += len(files)
                    for name in SUMMED[1:]:
                        sums[name] += int(str(values[name]))
                case Failure():
                    failures += 1
                    cannot_write = cannot_write or event.exit_status == Refused.exit_status
                case Finding() if event.severity == ERROR:
                    damage += 1
                    if self.options.fail_on_damage:
                        raise DamageFound(f"{event.path} is damaged: nothing was exported (--fail-on-damage)")
        if is_stream:
            yield Row({"type": "summary", **sums})
            return
        folder = self._folder
        assert folder is not None
        if cannot_write:  # publish nothing, so that the same command can be repeated
            raise Refused(f"nothing was exported to {self.options.output}: some files could not be written")
        if not names and not failures:
            names = self._empty()
        if names or not failures:
            folder.publish(names, is_complete=not failures and not damage)
        yield Row({"type": "summary", **sums})

    def _empty(self) -> list[str]:
        """A file without rows, from which readers learn the columns; none for JSON lines, which have no header."""
        options = self.options
        if options.form is Form.JSON or options.partition_by:
            return []
        from kseg.inspection.export.writers import Writers

        writers = Writers(options, f"part-empty-{options.run_id}", "")
        writers.begin_empty()
        writers.close()
        return writers.names


def refuse_own_input(output: str, targets: Sequence[Target]) -> None:
    """Raises Refused when the output would be inside an input directory, or contain one."""
    goal = os.path.realpath(output)
    for target in targets:
        path = os.path.realpath(target.path)
        if os.path.commonpath((path, goal)) == goal:
            raise Refused(f"the output {output} contains the input {target.path}")
    refuse_inside(output, targets)
