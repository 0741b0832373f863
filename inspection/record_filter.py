"""The record filter that dump, read and export share."""

from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Bounds are inclusive below and exclusive above, in log offsets and epoch milliseconds; None = no bound.

    keys: raw keys, any of which matches. key_regex: searched in the key's bytes. control: True only control
    records, False none, None both. read_committed: leave out records of aborted and of open transactions, and
    control records, as a consumer would. limit: stop after so many selected records (batches, when shallow).
    """

    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    keys: tuple[bytes, ...] = ()
    key_regex: bytes | None = None
    producer_id: int | None = None
    leader_epoch: int | None = None
    control: bool | None = None
    read_committed: bool = False
    limit: int | None = None

    @property
    def selects_everything(self) -> bool:
        return self == _EVERYTHING

    def leaves_out(self, first_offset: int | None, last_offset: int | None) -> bool:
        """Whether offsets, as far as they are known, are outside the selected ones."""
        if self.to_offset is not None and first_offset is not None and first_offset >= self.to_offset:
            return True
        return self.from_offset is not None and last_offset is not None and last_offset < self.from_offset


_EVERYTHING = Selection()
