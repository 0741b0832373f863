"""The declaration of options, from which two parsers and the manual are derived.

A command is a function whose keyword-only parameters are annotated with `Annotated[type, Option(...)]` or `Annotated[type, Argument(...)]`.
That signature is the only declaration of an option, which is spelled like its parameter unless it has `names`. Options that several
commands share as a group are the fields of a named tuple, declared in the same way; a parameter of that type stands for all of them.
The signature is read by:

- `quick_read`, which parses an ordinary command line, in microseconds and without importing anything;
- `typer_app.py`, which makes a typer command of it, for help, completion, suggestions and every command line that is not ordinary (typer
  alone takes longer to import than most dumps take to run);
- `manual.py`, which generates the man page.

Types: `bool` is a flag, `bool | None` a pair of flags `--x/--no-x`, `tuple[...]` an option or argument that may be repeated, everything
else takes one value. Both readers return text; `bind` converts it, so that they cannot differ in the meaning of a value.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, get_args, get_origin

from kseg.segment.errors import UsageError
from kseg.segment.layout import INT64_MAX

RESULT = "Result"
FILTER = "Filters"
INPUT = "Input"
PAYLOADS = "Payloads"
RUN = "Running"
CLUSTER = "Spark"
KAFKA = "Flags of kafka-dump-log.sh"
_PATHS = ("PATH", "FILE", "DIR", "JOURNAL")
_MOST_DIGITS = len(str(INT64_MAX))  # int() refuses thousands of digits, with a message of its own

Reader = Callable[[str], object]
Raw = str | bool | Sequence[str] | None


class Option:
    """A named option.

    names: `--x`, or `--x/--no-x`; empty if they follow from the name of the parameter. short: `-x`, for a flag. read: converts the
    text into a value, or raises ValueError with the reason. bare: the value of an option that is followed by another option instead of a
    value, as joptsimple allows.
    """

    __slots__ = ("bare", "choices", "help", "metavar", "names", "panel", "read", "short")

    def __init__(
        self,
        names: str = "",
        *,
        help: str,
        short: str = "",
        metavar: str = "",
        read: Reader | None = None,
        choices: Sequence[str] = (),
        panel: str = RESULT,
        bare: str = "",
    ) -> None:
        self.names = names
        self.short = short
        self.help = help
        self.metavar = metavar or "|".join(choices)
        self.read = _choice_reader(choices) if choices else read
        self.choices = choices
        self.panel = panel
        self.bare = bare


class Argument:
    """A positional argument. read_all: converts all values of a repeated one together."""

    __slots__ = ("help", "metavar", "read_all")

    def __init__(
        self,
        metavar: str,
        *,
        help: str,
        read_all: Callable[[Sequence[str]], tuple[str, ...]] | None = None,
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.read_all = read_all


class Bundle(NamedTuple):
    """A parameter that stands for several options. make: the named tuple of their values."""

    name: str
    make: Callable[..., object]


class Parameter:
    """One parameter of a command function. shape: flag, pair, one or many. names: as in `Option`, never empty for one. bundle: the
    bundle that it is a field of."""

    __slots__ = ("bundle", "default", "name", "names", "read", "required", "shape", "spec")

    def __init__(
        self, name: str, annotation: object, defaults: Mapping[str, object], bundle: Bundle | None = None
    ) -> None:
        kind, self.spec = get_args(annotation)
        self.name = name
        self.bundle = bundle
        self.required = name not in defaults
        self.default = defaults.get(name)
        members = get_args(kind)
        if kind is bool or bool in members:
            self.shape = "flag" if kind is bool else "pair"
        else:
            self.shape = "many" if get_origin(kind) is tuple else "one"
        self.names = _names(self.name, self.spec, self.shape) if isinstance(self.spec, Option) else ""
        number = kind is int or (isinstance(kind, types.UnionType) and int in members)
        custom: Reader | None = getattr(self.spec, "read", None)
        self.read: Reader = custom or (read_number if number else str)

    @property
    def flags(self) -> list[str]:
        """The spellings on the command line, the negative one of a pair last."""
        if not isinstance(self.spec, Option):
            return []
        return self.names.split("/") + ([self.spec.short] if self.spec.short else [])

    @property
    def hint(self) -> str:
        return self.flags[0] if self.flags else self.spec.metavar


@cache
def parameters(command: Callable[..., int]) -> tuple[Parameter, ...]:
    """The parameters of a command function in declaration order, each field of a named tuple as one."""
    defaults: Mapping[str, object] = command.__kwdefaults__ or {}
    found: list[Parameter] = []
    for name, annotation in command.__annotations__.items():
        if hasattr(annotation, "_field_defaults"):
            bundle = Bundle(name, annotation)
            fields, their_defaults = annotation.__annotations__, annotation._field_defaults
            found += [Parameter(field, fields[field], their_defaults, bundle) for field in fields]
        elif name != "return":
            found.append(Parameter(name, annotation, defaults))
    return tuple(found)


def spelled_out(known: Sequence[Parameter], words: Sequence[str]) -> list[str]:
    """The words of a command line, with `Option.bare` inserted after each option that was given without its optional value."""
    bare = {flag: each.spec.bare for each in known for flag in each.flags if each.spec.bare}
    found = []
    for word, following in zip(words, [*words[1:], "-"], strict=False):
        found.append(f"{word}={bare[word]}" if word in bare and following.startswith("-") else word)
    return found


def quick_read(known: Sequence[Parameter], words: Sequence[str]) -> dict[str, Raw] | None:
    """The text given for each parameter of an ordinary command line; None if typer has to parse it.

    Ordinary: long options spelled out, with `=value` or the value as next word, and arguments.
    """
    by_flag = {flag: parameter for parameter in known for flag in parameter.flags}
    positional = next((parameter for parameter in known if isinstance(parameter.spec, Argument)), None)
    raw: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            if positional is None:
                return None
            raw.setdefault(positional.name, []).append(word)
            continue
        flag, equals, value = word.partition("=")
        parameter = by_flag.get(flag)
        if parameter is None or (equals and parameter.shape in ("flag", "pair")):
            return None
        if parameter.shape in ("flag", "pair"):
            raw[parameter.name] = parameter.shape == "flag" or flag == parameter.flags[0]
            continue
        given = value if equals else next(rest, None)
        if given is None:
            return None
        if parameter.shape == "many":
            raw.setdefault(parameter.name, []).append(given)
        else:
            raw[parameter.name] = given
    if any(parameter.required and parameter.name not in raw for parameter in known):
        return None
    return raw


def bind(known: Sequence[Parameter], raw: Mapping[str, Raw]) -> dict[str, Any]:
    """The values for the command function. Raises UsageError that names the option and its valid values."""
    values: dict[str, Any] = {}
    bundled: dict[Bundle, dict[str, Any]] = {}
    for parameter in known:
        bundle = parameter.bundle
        among = values if bundle is None else bundled.setdefault(bundle, {})
        among[parameter.name] = _bound(parameter, raw.get(parameter.name))
    return values | {bundle.name: bundle.make(**fields) for bundle, fields in bundled.items()}


def read_number(text: str) -> int:
    """A whole number that fits the signed 64 bits of Kafka's fields."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):  # int() also takes 1_000 and the digits of other scripts
        raise ValueError("takes a whole number")
    if len(digits.lstrip("0")) > _MOST_DIGITS or not -INT64_MAX - 1 <= int(text) <= INT64_MAX:
        raise ValueError("takes a number of at most 64 bits")
    return int(text)


def _names(name: str, spec: Option, shape: str) -> str:
    words = name.replace("_", "-")
    return spec.names or (f"--{words}/--no-{words}" if shape == "pair" else f"--{words}")


def _bound(parameter: Parameter, given: Raw) -> object:
    if given is None or given == [] or given == ():
        if parameter.required:
            raise UsageError(f"{parameter.hint} is missing")
        return parameter.default
    if isinstance(given, bool):
        return given
    if isinstance(given, str):
        return _value(parameter, given)
    values = tuple(_value(parameter, each) for each in given)
    read_all = getattr(parameter.spec, "read_all", None)
    return values if read_all is None or len(values) == 1 else read_all(values)


def _value(parameter: Parameter, text: str) -> object:
    # an empty path would mean the working directory
    if not text and parameter.spec.metavar in _PATHS:
        raise UsageError(f"{parameter.hint} takes a path, not '': is a variable of the shell not set?")
    try:
        return parameter.read(text)
    except ValueError as error:
        raise UsageError(f"{parameter.hint} {error}, not {text!r}") from None


def _choice_reader(choices: Sequence[str]) -> Reader:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"takes one of {', '.join(choices)}")
        return text

    return read
