"""The text of `recover`: the steps of a plan, the cost of either policy (`cost_words`), and the verdict."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from kseg.cli.report import GOOD, Line
from kseg.cli.run_summary import RunSummary
from kseg.cli.text.amounts import size_words
from kseg.cli.text.change_report import ChangeReport, Stake, incomplete_words
from kseg.cli.text.cost_words import (
    POLICIES,
    LossTotal,
    cost_lines,
    is_costly,
    lost_before,
    missing_log_words,
    short_cost_words,
    stakes_of,
)
from kseg.cli.text.plan_words import carried_words, room_words, undo_words
from kseg.cli.text.replica_words import lost_replicas, missing_words
from kseg.recovery.repair.meta_properties_repair import OPTION_VALUES
from kseg.segment.counted import counted, log_range_words
from kseg.segment.findings import ERROR, WARNING
from kseg.segment.partition.names import METADATA_DIRECTORY
from kseg.segment.terminal import shown_path, visible

Values = Mapping[str, Any]

_PREDICATES = ("has ", "is ", "contains ", "cannot ", "was ")


def recover_words(values: Values) -> Iterator[str]:
    """One line for a step, a paragraph for a result."""
    if values.get("type") == "step":
        yield f"  {visible(str(values['words']))}"
    elif values.get("type") == "result":
        yield from _result(values)
    else:
        yield visible(str(values.get("words", values)))


def is_due(values: Values) -> bool:
    """Whether something remains to be done after this row: a plan that was not carried out, or damage that no plan repairs."""
    is_result = values.get("type") == "result"
    return is_result and bool(values.get("doubt") or is_planned(values) or lost_replicas(values))


def is_planned(values: Values) -> bool:
    """Whether the row is a plan that was not carried out."""
    return values.get("type") == "result" and bool(values.get("steps")) and not values.get("applied")


def repairs_metadata_log(values: Values) -> bool:
    """Whether the row is of a metadata log that is sound after its repair."""
    is_metadata_log = values.get("partition") == METADATA_DIRECTORY
    return is_metadata_log and bool(values.get("steps")) and not values.get("doubt")


def stays_unloadable(values: Values) -> bool:
    """Whether the row is of a partition that a broker fails to load, and that a repair leaves as it is."""
    costs = values.get("costs") or {}
    return bool(values.get("doubt")) and bool((costs.get("kafka") or {}).get("dies_of"))


def _result(values: Values) -> Iterator[str]:
    name = shown_path(str(values.get("partition") or values["log_dir"]))
    offsets = ""
    if "log_end_offset" in values:
        start, end = values["log_start_offset"], values["log_end_offset"]
        offsets = f"; {log_range_words(start, end)} (last stable {values['last_stable_offset']})"
    yield f"{name}: {_done(values)}{offsets}"
    if values.get("doubt") and "log_dir" in values:
        yield f"  a broker would still not start: {doubt_words(values['doubt'])}"
    elif values.get("doubt"):
        yield f"  still not sound: {doubt_words(values['doubt'])}"
    yield from missing_words(values)
    yield from cost_lines(values)
    yield from carried_words(values)
    yield from room_words(values)
    yield from undo_words(values)


def doubt_words(doubt: object) -> str:
    """The sentence for a doubt: about the partition or data directory (`has`, `is`, `contains`), or about a file in it."""
    text = visible(str(doubt))
    return f"it {text}" if text.startswith(_PREDICATES) else text


def _done(values: Values) -> str:
    steps = int(values.get("steps") or 0)
    if values.get("whole") is False:
        return f"checkpoints of the copies written to {shown_path(str(values['output']))}"
    if values.get("output"):
        return f"copied to {shown_path(str(values['output']))} with {counted(steps, 'change')}"
    if not steps:
        if values.get("doubt") or values.get("options_needed"):
            return "nothing can be repaired"
        # the data directory shares its journal with its partitions
        has_run = "log_dir" in values and values.get("journal")
        return "only its partitions were repaired" if has_run else "nothing to repair"
    return f"{'repaired in' if values.get('applied') else 'a repair is due:'} {counted(steps, 'step')}"


class CommandWith(Protocol):
    """Returns the command that carries out the plan, with these options and paths (None: those of the run)."""

    def __call__(self, options: Mapping[str, object], paths: tuple[str, ...] | None, /) -> str: ...


class RecoverReport(ChangeReport):
    """Totals over both policies, and a line for each partition that loses something or stays damaged. command: for plans that
    only the user can complete."""

    def __init__(self, command: CommandWith) -> None:
        super().__init__(recover_words)
        self._command = command
        # by data directory: the options to pass, and the data directories that provide the other values
        self.options_needed: dict[str, tuple[list[str], tuple[str, ...]]] = {}
        self._policy = POLICIES[0]
        self._to_repair = self._applied = self._not_sound = self._room_bytes = 0
        self._has_room = True
        self._lost = {policy: LossTotal() for policy in POLICIES}
        self.is_start_doubtful = self._is_own_due = self._is_own_repaired = False
        self._replicas_lost = self._missing_logs = 0

    def row(self, values: Values) -> None:
        if values.get("type") == "result" and "log_dir" in values:
            self.is_start_doubtful |= bool(values.get("doubt"))
            self._is_own_due |= is_planned(values)
            self._is_own_repaired |= bool(values.get("steps") and values.get("applied"))
            self._replicas_lost += len(lost_replicas(values))
            if values.get("options_needed"):
                needed = values["options_needed"], tuple(values["log_dirs_needed"])
                self.options_needed[str(values["log_dir"])] = needed
        super().row(values)

    def closing(self, summary: RunSummary) -> Iterator[Line]:
        yield from super().closing(summary)
        for names, log_dirs in self.options_needed.values():
            paths = None if len(self.options_needed) == 1 else log_dirs
            command = self._command({name: OPTION_VALUES[name] for name in names}, paths)
            yield Line(f"next, with the values of this node: {command}")

    @property
    def is_left_damaged(self) -> bool:
        return self._not_sound > 0

    def total(self, values: Values) -> None:
        self._policy = values.get("policy") or self._policy
        steps = int(values.get("steps") or 0)
        self._to_repair += bool(steps)
        self._applied += bool(steps and values.get("applied"))
        self._not_sound += bool(values.get("doubt"))
        self._missing_logs += len(values.get("missing") or ())
        for room in values.get("room") or ():
            self._room_bytes += room["needed"]
            self._has_room = self._has_room and room["fits"]
        costs = {} if lost_before(values) else values.get("costs") or {}
        for policy, cost in costs.items():
            self._lost[policy].add(cost)

    def line(self, values: Values) -> str:
        costs: Mapping[str, Values] = values.get("costs") or {}
        has_cost = any(map(is_costly, costs.values()))
        missing = missing_log_words(values)
        if not has_cost and not values.get("doubt") and not missing:
            return ""
        words = [_outcome(values)]
        if has_cost:
            words_by_policy = {
                policy: short_cost_words(costs[policy]) for policy in POLICIES if policy in costs
            }
            if before := lost_before(values):
                words.append(before)
            elif len(set(words_by_policy.values())) == 1:
                words.append(f"either policy {next(iter(words_by_policy.values()))}")
            else:
                words += [f"policy {policy} {cost}" for policy, cost in words_by_policy.items()]
        if values.get("doubt"):
            words.append(f"still not sound: {doubt_words(values['doubt'])}")
        if missing:
            words.append(missing)
        return "; ".join(words)

    def stake(self, values: Values) -> Stake:
        return stakes_of(values, self._policy)

    def alike(self, values: Values) -> str:
        return f"{_outcome(values)}, no record lost" if values.get("steps") else _outcome(values)

    def is_unchanged(self, values: Values) -> bool:
        return not values.get("steps")

    def verdict(self, summary: RunSummary) -> Line:
        all_of_them = counted(self.partitions, "partition")
        if summary.failures:
            words = self._changes(all_of_them) if self.partitions else ""
            return Line(incomplete_words(summary, words), ERROR)
        if self._not_sound or self.is_start_doubtful or self._replicas_lost:
            return Line(f"NOT SOUND: {self._changes(all_of_them)}", ERROR)
        if self._to_repair > self._applied or self._is_own_due:
            return Line(f"DUE: {self._changes(all_of_them)}", WARNING)
        verdict = "REPAIRED" if self._applied or self._is_own_repaired else "SOUND"
        return Line(f"{verdict}: {self._changes(all_of_them)}", GOOD)

    def totals(self) -> Iterator[str]:
        from kseg.change.apply.keeping import BESIDE
        from kseg.change.apply.room import advice

        if not self._to_repair:
            return
        for policy in POLICIES:
            chosen = ""
            if policy == self._policy:
                chosen = " (this run)" if self._applied else " (this plan)"
            yield f"policy {policy}{chosen}: {self._lost[policy].words()}"
        if self._room_bytes and not self._applied:
            short = "" if self._has_room else ", and there is not enough"
            yield f"needs up to {size_words(self._room_bytes)} of room{short}"
            if short:
                yield advice(BESIDE)

    def _changes(self, all_of_them: str) -> str:
        if not self._to_repair:
            words = f"nothing to repair in {all_of_them}"
            if self._is_own_due or self._is_own_repaired:
                verb = "are to be repaired" if self._is_own_due else "were repaired"
                words = f"files of the data directory {verb}; {words}"
        else:
            is_one = self._to_repair == 1
            verb = ("was repaired" if is_one else "were repaired") if self._applied == self._to_repair else ""
            verb = verb or ("is to be repaired" if is_one else "are to be repaired")
            words = f"{self._to_repair:,} of {all_of_them} {verb}, {self._lost[self._policy].records_words()}"
        if self._missing_logs:
            words += f"; the records of {counted(self._missing_logs, 'log')} were missing before"
        if self._not_sound:
            words += f"; {self._not_sound:,} still not sound"
        if self._replicas_lost:
            words += f"; {counted(self._replicas_lost, 'replica')} missing"
        is_doubtful = self.is_start_doubtful or self.options_needed
        return words + ("; a broker would still not start" if is_doubtful else "")


def _outcome(values: Values) -> str:
    """Like `_done`, in words that many partitions share."""
    if values.get("output") and values.get("whole") is not False:
        steps = int(values.get("steps") or 0)
        return f"copied with {counted(steps, 'change')}" if steps else "copied as it is"
    return _done(values)
