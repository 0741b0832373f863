"""What `--help` shows: of kseg, every command under its purpose; of a command, at most two screens, with the examples first and one
sentence for each option.

The manual pages, made from the same declarations (`cli.manual`), have the complete help texts.
"""

import inspect
import shutil
import textwrap
from collections.abc import Callable, Iterator

from kseg.cli.option_schema import Argument, Option, Parameter, parameters
from kseg.cli.registry import BY_PURPOSE, function_of, module_of

HELP = """Offline forensic and maintenance toolkit for Apache Kafka's on-disk logs.

Reads what a broker left on disk and reports exactly what is there and what is wrong. Every change is planned and shown
first, is made only on request, and can be undone.
"""
OPTIONS = {
    "--help, -h": "The commands, or with a command its options and examples.",
    "--version": "Versions of kseg and its dependencies; whether the kernel is compiled.",
    "--install-completion": "Install completion of commands and options for the current shell.",
    "--show-completion": "Show the completion script of the current shell.",
}
STATUS = (
    (0, "done, nothing wrong"),
    (1, "damage found; lookup: nothing found; a plan: there is something to change"),
    (2, "wrong usage"),
    (3, "an input cannot be read"),
    (4, "refused"),
    (5, "some targets failed, the others are done"),
    (70, "a bug in kseg"),
    (130, "interrupted"),
)
_NARROW = 60
_WIDEST = 120
_COLUMN = 26  # column at which the sentence of an option begins
_COMMAND_COLUMN = 16  # and that of a command

Lines = Iterator[tuple[str, str]]  # (style, line): style is heading, option or empty


def overview_lines(width: int) -> Lines:
    """The page of kseg itself. width: of the terminal."""
    width = _bounded(width)
    yield "heading", "kseg COMMAND [options] PATH..."
    for paragraph in HELP.strip().split("\n\n"):
        yield from (("", line) for line in textwrap.wrap(paragraph, width))
    for purpose, names in BY_PURPOSE.items():
        yield "", ""
        yield "heading", purpose
        for name in names:
            yield from _described(name, first_sentence(help_text(name)), width, _COMMAND_COLUMN)
    yield "", ""
    yield "heading", "Options"
    for flags, meaning in OPTIONS.items():
        yield from _described(flags, first_sentence(meaning), width, _COLUMN)
    yield "", ""
    yield "heading", "Exit status"
    for status, meaning in STATUS:
        yield from _described(f"{status:>3}", meaning, width, _COLUMN - 19)
    yield "", ""
    yield "heading", "kseg COMMAND --help shows the options and examples of a command."


def help_text(name: str) -> str:
    """What a command does: the docstring of its function."""
    paragraphs = inspect.cleandoc(function_of(name).__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def help_lines(name: str, width: int) -> Lines:
    """The page of a command. width: of the terminal."""
    width, what = _bounded(width), help_text(name)
    known = parameters(function_of(name))
    arguments = [each for each in known if isinstance(each.spec, Argument)]
    shown = " ".join(f"{each.hint}..." if each.shape == "many" else each.hint for each in arguments)
    yield "heading", f"kseg {name} [options] {shown}"
    yield from (("", line) for line in textwrap.wrap(what.split("\n\n")[0], width))
    yield "", ""
    yield "heading", "Examples"
    for purpose, words in module_of(name).EXAMPLES:
        yield from (("", f"  {line}") for line in textwrap.wrap(_introduced(purpose), width - 2))
        yield "option", f"    {words}"
    options = [(each, each.spec) for each in known if isinstance(each.spec, Option)]
    for panel in dict.fromkeys(spec.panel for _, spec in options):
        yield "heading", panel
        for parameter, spec in options:
            if spec.panel == panel:
                yield from _option(parameter, spec, width)
    yield "", ""
    yield "heading", f"man kseg-{name} describes every option in full."


def _introduced(purpose: str) -> str:
    """The line above an example command, with a colon at its end unless it is a question."""
    return purpose if not purpose or purpose.endswith("?") else f"{purpose}:"


def _option(parameter: Parameter, spec: Option, width: int) -> Lines:
    """The option and the first sentence of its help."""
    spelled = " ".join(filter(None, (parameter.names, spec.short, spec.metavar)))
    return _described(spelled, _sentence(parameter, spec), width, _COLUMN)


def _described(what: str, sentence: str, width: int, column: int) -> Lines:
    """An indented entry and its sentence, which begins in a column of the same line if there is room."""
    entry = f"  {what}"
    lines = textwrap.wrap(sentence, width - column)
    if len(entry) < column - 1 and lines:
        yield "option", entry.ljust(column) + lines.pop(0)
    elif len(lines) == 1 and len(entry) + 2 + len(lines[0]) <= width:
        yield "option", f"{entry}  {lines.pop()}"
    else:
        yield "option", entry
    yield from (("", " " * column + line) for line in lines)


def _bounded(width: int) -> int:
    return max(_NARROW, min(width, _WIDEST))


def _sentence(parameter: Parameter, spec: Option) -> str:
    first = first_sentence(spec.help)
    if parameter.shape == "one" and parameter.default is not None and "Default" not in first:
        first = f"{first} [default: {parameter.default}]"
    return first


def first_sentence(text: str) -> str:
    """Up to the first semicolon, or to the full stop that ends a sentence: one before a capital letter."""
    words = text.split()
    for at, word in enumerate(words[:-1]):
        if word.endswith(";"):
            return " ".join(words[: at + 1])[:-1] + "."
        if word.endswith(".") and words[at + 1][:1].isupper():
            return " ".join(words[: at + 1])
    return " ".join(words)


def show(page: Callable[[int], Lines]) -> None:
    """Print a page, in colour if stdout is a terminal that supports it. page: its lines for a width: COLUMNS, else that of the terminal."""
    from rich.console import Console
    from rich.text import Text

    width = shutil.get_terminal_size().columns
    console = Console(highlight=False, soft_wrap=True, width=width)
    styles = {"heading": "bold", "option": "cyan", "": ""}
    for style, line in page(width):
        text = Text(line)
        is_described = style == "option" and line.startswith("  ") and "  " in line.lstrip()
        text.stylize(styles[style], 0, line.find("  ", 2) if is_described else len(line))
        console.print(text)
