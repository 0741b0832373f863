"""What `kseg COMMAND --help` shows: at most two screens, with the examples first and one sentence for each option.

The manual page of the command, made from the same declarations (`cli.manual`), has the complete help texts.
"""

import textwrap
from collections.abc import Iterator

from kseg.cli.option_schema import Argument, Option, Parameter, parameters
from kseg.cli.registry import function_of, module_of

_NARROW = 60
_WIDEST = 120
_COLUMN = 26  # column at which the sentence of an option begins


def help_lines(name: str, what: str, width: int) -> Iterator[tuple[str, str]]:
    """(style, line) of the page: style is heading, option or empty. what: the description of the command. width: of the terminal."""
    width = max(_NARROW, min(width, _WIDEST))
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


def _option(parameter: Parameter, spec: Option, width: int) -> Iterator[tuple[str, str]]:
    """The option and the first sentence of its help, which begins on the same line if there is room."""
    spelled = " ".join(filter(None, ("  " + parameter.names, spec.short, spec.metavar)))
    lines = textwrap.wrap(_sentence(parameter, spec), width - _COLUMN)
    if len(spelled) < _COLUMN - 1 and lines:
        yield "option", spelled.ljust(_COLUMN) + lines.pop(0)
    elif len(lines) == 1 and len(spelled) + 2 + len(lines[0]) <= width:
        yield "option", f"{spelled}  {lines.pop()}"
    else:
        yield "option", spelled
    yield from (("", " " * _COLUMN + line) for line in lines)


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


def show(name: str, what: str) -> None:
    """Print the page, in colour if stdout is a terminal that supports it."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    styles = {"heading": "bold", "option": "cyan", "": ""}
    for style, line in help_lines(name, what, console.width):
        text = Text(line)
        if style == "option":
            text.stylize(
                styles[style],
                0,
                line.find("  ", 2) if line.startswith("  --") and "  " in line[2:] else len(line),
            )
        else:
            text.stylize(styles[style])
        console.print(text)
