"""`dataclass` of the standard library, for a program that starts often.

The standard decorator compiles up to eight functions for each class while its module is imported. A command imports about a hundred such
classes, creates instances of a third of them, and used to spend more than a third of its start-up time on that. Here

1. the standard decorator finds the fields and creates the slots, but generates no function;
2. `__init__`, the only function that needs generated code for speed, is compiled when the first instance is created;
3. `__repr__`, `__eq__`, `__hash__`, and for frozen classes `__setattr__`, `__delattr__` and pickling, are closures over the names of the
   fields.

`fields`, `replace`, `asdict` and `match` work as usual. Unsupported, because unused: `order`, `unsafe_hash`, `weakref_slot`, `InitVar`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

T = TypeVar("T")


def _lazily(
    kind: type | None = None, /, *, frozen: bool = False, slots: bool = False, kw_only: bool = False
) -> Any:
    """A class decorator like `dataclasses.dataclass`, with or without arguments (see the module)."""

    def decorated(plain: type) -> type:
        return _made(plain, frozen, slots, kw_only)

    return decorated if kind is None else decorated(kind)


def _made(plain: type, frozen: bool, slots: bool, kw_only: bool) -> type:
    if not plain.__doc__:
        # without a docstring the standard decorator builds one from the signature, which is slow
        plain.__doc__ = plain.__name__
    own = set(plain.__dict__)
    own.discard("__hash__" if plain.__dict__.get("__hash__") is None else "")
    kind: type = dataclasses.dataclass(plain, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
    fields = dataclasses.fields(kind)
    methods: dict[str, Any] = {"__init__": _first_init(kind, frozen, slots), "__repr__": _repr}
    methods |= _comparisons([field.name for field in fields if field.compare], frozen)
    if frozen:
        methods |= _refusals(kind, frozenset(field.name for field in fields))
        if slots:
            methods |= _pickling([field.name for field in fields])
    for name, method in methods.items():
        if name not in own:
            setattr(kind, name, method)
    return kind


def _repr(self: Any) -> str:
    told = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(told)})"


def _comparisons(names: Sequence[str], frozen: bool) -> dict[str, Any]:
    compared = _as_tuple(names)

    def equal(self: Any, other: Any) -> Any:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(compared(self))

    return {"__eq__": equal, "__hash__": hashed if frozen else None}


def _as_tuple(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _refusals(kind: Any, names: frozenset[str]) -> dict[str, Any]:
    """The methods that make a frozen instance immutable."""

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if type(self) is kind or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(kind, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is kind or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(kind, self).__delattr__(name)

    return {"__setattr__": set_attribute, "__delattr__": delete_attribute}


def _pickling(names: Sequence[str]) -> dict[str, Any]:
    values, set_attribute = _as_tuple(names), object.__setattr__

    def state_of(self: Any) -> tuple[Any, ...]:
        return values(self)

    def set_state(self: Any, state: Sequence[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            set_attribute(self, name, value)

    return {"__getstate__": state_of, "__setstate__": set_state}


# --- __init__


def _first_init(kind: type, frozen: bool, slots: bool) -> Callable[..., None]:
    """An `__init__` that compiles the real one and replaces itself with it."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init = _init(kind, frozen, slots)
        kind.__init__ = init  # type: ignore[misc]
        init(self, *args, **kwargs)

    return __init__


def _init(kind: type, frozen: bool, slots: bool) -> Callable[..., None]:
    fields = dataclasses.fields(kind)
    names: dict[str, Any] = {"_absent_": MISSING}
    lines = [line for field in fields for line in _assignment(kind, field, frozen, slots, names)]
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    positional = [_parameter(field) for field in fields if field.init and not field.kw_only]
    by_name = [_parameter(field) for field in fields if field.init and field.kw_only]
    parameters = ", ".join(("self", *positional, *(("*", *by_name) if by_name else ())))
    source = "\n ".join((f"def __init__({parameters}):", *lines, "pass"))
    exec(source, names)  # noqa: S102  names of fields are all that goes into it
    init: Callable[..., None] = names["__init__"]
    init.__module__, init.__qualname__ = kind.__module__, f"{kind.__qualname__}.__init__"
    return init


def _parameter(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"{field.name}=_default_{field.name}"
    return f"{field.name}=_absent_" if field.default_factory is not MISSING else field.name


def _assignment(
    kind: type, field: Field[Any], frozen: bool, slots: bool, names: dict[str, Any]
) -> tuple[str, ...]:
    """The line that assigns a field, empty if the field keeps its default. names: receives the values that the line uses."""
    name = field.name
    names[f"_default_{name}"], names[f"_make_{name}"] = field.default, field.default_factory
    value = name
    if field.default_factory is not MISSING:
        value = f"_make_{name}() if {name} is _absent_ else {name}" if field.init else f"_make_{name}()"
    elif not field.init:
        if field.default is MISSING or not slots:
            return ()
        value = f"_default_{name}"
    if not frozen:
        return (f"self.{name} = {value}",)
    slot = getattr(kind, name, None)
    if isinstance(slot, MemberDescriptorType):
        names[f"_put_{name}"] = slot.__set__  # avoids a look-up by name
        return (f"_put_{name}(self, {value})",)
    names["_put_"] = object.__setattr__
    return (f"_put_(self, {name!r}, {value})",)


class Same(Generic[T]):
    """A value that is not hashable, or has many fields, as the argument of a cached function: equal only to the same object, which must not
    change."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  type checkers take it for the standard one
else:
    dataclass = _lazily
