"""Leader epochs during a load, and their checkpoint file (Kafka: LeaderEpochFileCache; fact sheet §5.5).

The file is created empty when it is absent, and written when the history changes: by a batch that recovery finds, or by
truncation to the ends of the log. A load that changes nothing does not rewrite even an irregular file.
"""

from kseg.recovery.loading.kafka_exceptions import (
    ILLEGAL_ARGUMENT,
    BrokerException,
    checkpoint_exception,
    unreadable_file,
)
from kseg.recovery.loading.load_state import LoadState
from kseg.segment.errors import FormatError
from kseg.segment.java.java_text import INT_BITS, LONG_BITS
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.sidecar.checkpoint import decode_leader_epochs, encode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochHistory

FILE_NAME = NAME_BY_ROLE[Role.LEADER_EPOCHS]
_TEMPORARY = f"{FILE_NAME}.tmp"


class LoadedEpochs:
    """The history of leader epochs, read from its file. Raises BrokerException when a broker cannot read it."""

    def __init__(self, load_state: LoadState) -> None:
        self._load_state = load_state
        self._reasons: dict[str, str] = {}  # the last change of each kind
        self._is_unsaved = False
        if FILE_NAME not in load_state.image:
            load_state.write(FILE_NAME, b"", "created because it was missing")
            if FILE_NAME not in load_state.found:
                load_state.note("leader-epoch-file-missing", FILE_NAME, "there is no leader-epoch checkpoint")
        data = bytes(load_state.view(FILE_NAME))
        try:
            self._history = EpochHistory(decode_leader_epochs(data))
        except FormatError as error:
            raise unreadable_file(
                checkpoint_exception(data, (INT_BITS, LONG_BITS)) or ILLEGAL_ARGUMENT, FILE_NAME, error
            ) from error

    @property
    def latest_epoch(self) -> int:
        """The latest epoch; -1 if there is none."""
        latest = self._history.latest
        return -1 if latest is None else latest.epoch

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record the epoch of a batch, if it is new; `save` writes it, once for the thousands of epochs that a log may have."""
        try:
            changed = self._history.assign(epoch, start_offset)
        except FormatError as error:
            raise BrokerException(ILLEGAL_ARGUMENT, str(error)) from error
        if changed:
            self._reasons["assign"] = f"epoch {epoch} starts at offset {start_offset}"
            self._is_unsaved = True

    def save(self) -> None:
        """Write the file if the history has changed."""
        if not self._is_unsaved:
            return
        self._is_unsaved = False
        self._load_state.write(
            FILE_NAME, encode_leader_epochs(self._history.entries), "; ".join(self._reasons.values())
        )
        if _TEMPORARY in self._load_state.image:
            self._load_state.remove(_TEMPORARY, "overwritten and renamed when the checkpoint was written")

    def truncate_from_end(self, end_offset: int) -> None:
        if self._history.truncate_from_end(end_offset):
            self._save("end", f"epochs that start at or above the log end {end_offset} are removed")

    def truncate_from_start(self, start_offset: int) -> None:
        if self._history.truncate_from_start(start_offset):
            self._save("start", f"the first epoch starts at the log start {start_offset}")

    def clear(self) -> None:
        self._history.clear()
        self._save("clear", "the log is empty")

    def _save(self, kind: str, why: str) -> None:
        self._reasons[kind] = why
        self._is_unsaved = True
        self.save()
