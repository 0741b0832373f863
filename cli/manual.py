"""The man pages and the completions of shells, generated from the commands' declarations and the catalogue of findings.

`python -m kseg.cli.manual [FOLDER]` writes them (FOLDER defaults to `man`); a test compares the files with what would be generated now, so
a changed option cannot leave its page behind. Pages contain the version and no date: the same sources give the same bytes.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kseg import __version__
from kseg.cli.help_page import HELP, OPTIONS, STATUS, help_text
from kseg.cli.main import COMPLETING
from kseg.cli.next_command import hint_of
from kseg.cli.option_schema import Argument, Option, Parameter, parameters
from kseg.cli.registry import COMMANDS, function_of, module_of
from kseg.segment.findings import CATALOGUE, ERROR, INFO, WARNING

MEANING = {
    ERROR: "damage: bytes or answers are lost or wrong; makes the exit status 1",
    WARNING: "suspicious or untidy: a broker would cope, a human should look",
    INFO: "worth knowing",
}
ENVIRONMENT = (
    ("KSEG_TRACEBACK", "If set to 1, the report of a bug (exit status 70) includes its traceback."),
    ("_KSEG_COMPLETE", "Set by the shell's completion script; see --install-completion."),
)
FIRST_EXAMPLES = (
    ("What state is this broker's disk in, and what is there to do", "kseg doctor /var/lib/kafka"),
    ("What would a repair do, and what does it cost", "kseg recover /var/lib/kafka"),
    ("Repair, with the broker stopped", "kseg recover --apply /var/lib/kafka"),
    ("Undo it", "kseg undo /var/lib/kafka"),
    (
        "Where is the message that was written at noon",
        "kseg lookup --timestamp 2026-11-21T12:00:00Z orders-0",
    ),
)
# where each shell looks for completions, below `share/`
COMPLETIONS = {"bash": "kseg.bash", "zsh": "_kseg", "fish": "kseg.fish"}


def pages() -> dict[str, str]:
    """File name to content of every page."""
    made = {"kseg.1": _main_page(), "kseg-findings.7": _findings_page()}
    for name in COMMANDS:
        made[f"kseg-{name}.1"] = _command_page(name)
    return made


def write(folder: Path) -> list[Path]:
    """Write all pages into `folder`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in pages().items():
        path = folder / name
        path.write_text(content, encoding="utf-8")
        written.append(path)
    return written


def completions() -> dict[str, str]:
    """File name to content of the completion script of each shell."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # imported there without an alias

    return {
        name: get_completion_script(prog_name="kseg", complete_var=COMPLETING, shell=shell).lstrip() + "\n"
        for shell, name in COMPLETIONS.items()
    }


PATHS_BEYOND_DISKS = (
    "Commands that only read also take tar archives (.tar, .tar.gz, .tar.zst) and paths below them, as "
    "in backup.tar.zst/data; URLs such as s3://bucket/data with the extra kseg[remote], with the "
    "credentials that the store's own library finds; and tiered: in front of either for what a "
    "tiered-storage plugin has uploaded. doctor and the commands that change directories refuse them. "
    "Local copies are made in TMPDIR."
)


def _main_page() -> str:
    what, *more = HELP.strip().split("\n\n")
    lines = _head("kseg", 1, what)
    lines += [".SH SYNOPSIS", ".B kseg", r".I command", r"[\fIoption\fR...] [\fIPATH\fR...]"]
    lines += [*_examples(FIRST_EXAMPLES), ".SH DESCRIPTION", *_prose([what, *more])]
    lines += [".SH COMMANDS"]
    for name in COMMANDS:
        lines += [".TP", rf"\fBkseg\-{name}\fR(1)", _text(_first_sentence(help_text(name)))]
    lines += [".SH OPTIONS"]
    for flag, meaning in OPTIONS.items():
        lines += [".TP", rf"\fB{_text(flag)}\fR", _text(meaning)]
    lines += [
        ".SH PATHS",
        _text(PATHS_BEYOND_DISKS),
        *_values_section(),
        *_status_section(),
        ".SH ENVIRONMENT",
    ]
    for variable, meaning in ENVIRONMENT:
        lines += [".TP", rf"\fB{_text(variable)}\fR", _text(meaning)]
    return _joined([*lines, *_see_also("")])


def _command_page(name: str) -> str:
    known = parameters(function_of(name))
    paragraphs = help_text(name).split("\n\n")
    lines = _head(f"kseg-{name}", 1, paragraphs[0])
    lines += [".SH SYNOPSIS", rf".B kseg {name}", r"[\fIoption\fR...]", *_synopsis_of_arguments(known)]
    lines += _examples(module_of(name).EXAMPLES)
    lines += [".SH DESCRIPTION", *_prose(paragraphs)]
    lines += [".SH ARGUMENTS"]
    for parameter in known:
        if isinstance(parameter.spec, Argument):
            lines += [".TP", rf"\fI{_text(parameter.spec.metavar)}\fR", _text(parameter.spec.help)]
    lines += [".SH OPTIONS", *_options(known)]
    lines += [*_values_section(), *_status_section()]
    return _joined([*lines, *_see_also(name)])


def _examples(examples: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Examples first: that is what most readers look for."""
    yield ".SH EXAMPLES"
    for what, words in examples:
        yield from (".PP", *([_text(f"{what}:")] if what else []), ".nf", ".RS 4", _text(words), ".RE", ".fi")


def _findings_page() -> str:
    lines = _head("kseg-findings", 7, "Everything kseg can say about the state of a file.")
    lines += [
        ".SH DESCRIPTION",
        _text(
            "A finding has an id that does not change between versions, a severity, a path, and where they apply "
            "a byte range and the offsets concerned. Findings of severity error make the exit status 1."
        ),
        ".SH SEVERITIES",
    ]
    for severity, meaning in MEANING.items():
        lines += [".TP", rf"\fB{severity}\fR", _text(meaning)]
    lines += [".SH FINDINGS"]
    for kind in CATALOGUE.values():
        lines += [".TP", rf"\fB{_text(kind.id)}\fR ({kind.severity})", _text(f"{kind.sentence}.")]
        advice = hint_of(kind.hint, "verify")
        if advice:
            named = advice.format(path="FILE", partition="PARTITION", log_dir="LOG_DIR")
            lines += [".br", rf"Next: \fI{_text(named)}\fR"]
    return _joined([*lines, *_see_also("")])


def _options(known: Sequence[Parameter]) -> Iterator[str]:
    panels: dict[str, list[Parameter]] = {}
    for parameter in known:
        if isinstance(parameter.spec, Option):
            panels.setdefault(parameter.spec.panel, []).append(parameter)
    for panel, members in panels.items():
        yield f".SS {_text(panel)}"
        for parameter in members:
            assert isinstance(parameter.spec, Option)
            flags = ", ".join(rf"\fB{_text(flag)}\fR" for flag in parameter.flags)
            operand = (
                "" if parameter.shape in ("flag", "pair") else rf" \fI{_text(parameter.spec.metavar)}\fR"
            )
            yield ".TP"
            yield f"{flags}{operand}"
            yield _text(parameter.spec.help + _default_words(parameter))


def _default_words(parameter: Parameter) -> str:
    if parameter.required:
        return " Required."
    if parameter.shape != "one" or parameter.default is None:
        return ""
    return f" Default: {parameter.default}."


def _synopsis_of_arguments(known: Sequence[Parameter]) -> Iterator[str]:
    for parameter in known:
        if isinstance(parameter.spec, Option) and parameter.required:
            yield rf"\fB{_text(parameter.hint)}\fR \fI{_text(parameter.spec.metavar)}\fR"
    for parameter in known:
        if isinstance(parameter.spec, Argument):
            yield rf"\fI{_text(parameter.spec.metavar)}\fR..."


def _values_section() -> list[str]:
    return [
        ".SH VALUES",
        _text(
            "A TIME is a whole number of epoch milliseconds, an ISO 8601 time, a clock time such as "
            "14:03 (the last one), a time ago such as -1h, or now. It is in UTC unless a zone follows: "
            "+02:00, Europe/Berlin or local. A SIZE is a number of bytes, or one with K, M, G or T (or "
            "KiB, MiB, GiB, TiB), or with the decimal KB, MB, GB or TB. A DURATION is a number of "
            "milliseconds, or numbers with the units w, d, h, m (or min), s and ms, the largest first: "
            "7d, 1h30m. Before a unit a number may have a fraction: 1.5GiB, 0.5h. A GLOB takes * ? [ ]."
        ),
    ]


def _status_section() -> list[str]:
    lines = [".SH EXIT STATUS"]
    for status, meaning in STATUS:
        lines += [".TP", rf"\fB{status}\fR", _text(f"{meaning}.")]
    return lines


def _see_also(own: str) -> list[str]:
    names = [f"kseg-{name}" for name in COMMANDS if name != own]
    references = [rf"\fB{_text(name)}\fR(1)" for name in (["kseg", *names] if own else names)]
    return [".SH SEE ALSO", ", ".join([*references, r"\fBkseg\-findings\fR(7)"])]


def _head(name: str, section: int, what: str) -> list[str]:
    title = name.upper().replace("-", r"\-")
    return [
        f'.TH {title} {section} "" "kseg {__version__}" "kseg manual"',
        ".SH NAME",
        rf"{_text(name)} \- {_text(_first_sentence(what).rstrip('.'))}",
    ]


def _prose(paragraphs: Sequence[str]) -> Iterator[str]:
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _first_sentence(text: str) -> str:
    return text.split("\n\n", maxsplit=1)[0]


def _text(text: str) -> str:
    """Text as roff: backslashes and hyphens are literal, a leading dot or quote is not a request."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _joined(lines: Sequence[str]) -> str:
    source = r'.\" Made by "python -m kseg.cli.manual" from the declarations of the commands; edit those.'
    return "\n".join([source, *lines]) + "\n"


if __name__ == "__main__":
    for path in write(Path(sys.argv[1] if len(sys.argv) > 1 else "man")):
        print(path)
    for script, text in completions().items():
        Path("completions", script).write_text(text, encoding="utf-8")
