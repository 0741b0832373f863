"""`segment.values.dataclass` creates the same classes as the standard library's decorator."""

import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import pytest

from kseg.segment import values


def _shapes(dataclass: Callable[..., Any]) -> dict[str, Any]:
    """Classes with every feature that kseg's dataclasses use, created by this decorator."""

    @dataclass(frozen=True, slots=True)
    class Point:
        """A point."""

        x: int
        y: int = 2
        names: tuple[str, ...] = field(default=(), compare=False)
        seen: list[int] = field(default_factory=list, hash=False, compare=False, repr=False)
        ORIGIN: ClassVar[int] = 0

    @dataclass(frozen=True, slots=True)
    class Solid(Point):
        z: int = 3

        @property
        def sum(self) -> int:
            return self.x + self.y + self.z

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        level: str = "all"
        now_ms: int

    @dataclass(slots=True)
    class Tally:
        count: int = 0
        twice: int = field(init=False)
        kept: dict[str, int] = field(init=False, default_factory=dict)

        def __post_init__(self) -> None:
            self.twice = 2 * self.count

    @dataclass
    class Loose:
        one: int
        other: int = field(init=False, default=5)

        def __repr__(self) -> str:
            return "loose"

    @dataclass(frozen=True)
    class Single:
        only: float

        def __hash__(self) -> int:
            return 7

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    made = (Point, Solid, Options, Tally, Loose, Single, Empty)
    return {kind.__name__: kind for kind in made}


LAZY, STANDARD = _shapes(values.dataclass), _shapes(dataclasses.dataclass)
CALLS: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("Point", (1,), {}),
    ("Point", (1, 3, ("a",), [4]), {}),
    ("Point", (), {"y": 1, "x": 2}),
    ("Point", (), {}),
    ("Point", (1,), {"x": 1}),
    ("Point", (1,), {"unknown": 1}),
    ("Solid", (1, 2), {"z": 9}),
    ("Options", (), {"now_ms": 5}),
    ("Options", (5,), {}),
    ("Tally", (4,), {}),
    ("Tally", (), {}),
    ("Loose", (1,), {}),
    ("Loose", (1, 2), {}),
    ("Single", (1.5,), {}),
    ("Empty", (), {}),
)


def _outcome(call: Callable[[], Any]) -> Any:
    """The result of a call, or its exception."""
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return type(error).__name__, str(error)


def _about(kind: Any, args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """Every visible property of a value."""
    value = _outcome(lambda: kind(*args, **named))
    if isinstance(value, tuple):
        return [value]
    fields = [(each.name, each.init, each.compare, each.kw_only) for each in dataclasses.fields(value)]
    return [
        repr(value),
        dataclasses.asdict(value),
        fields,
        value == kind(*args, **named),
        value == 1,
        kind.__match_args__,
        hasattr(value, "__dict__"),
        _outcome(lambda: hash(value) == hash(kind(*args, **named))),
        [_outcome(partial(setattr, value, name, 8)) for name, *_ in fields],
        repr(value),
        [getattr(value, name) for name, *_ in fields],
    ]


@pytest.mark.parametrize(("name", "args", "named"), CALLS)
def test_dataclass_values_equal_those_of_the_standard_library(
    name: str, args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    assert _about(LAZY[name], args, named) == _about(STANDARD[name], args, named)


def test_equality_uses_only_compared_fields() -> None:
    point = LAZY["Point"]
    assert point(1, 2, ("a",)) == point(1, 2, ("b",))
    assert hash(point(1, 2, ("a",))) == hash(point(1, 2, ("b",)))
    assert point(1, 2) != point(1, 3)
    assert point(1, 2) != LAZY["Solid"](1, 2)
    assert dataclasses.replace(point(1, 2), y=5) == point(1, 5)
    assert LAZY["Solid"](1).sum == 6
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point(1, 2).x


def test_each_value_has_its_own_default_factory_result() -> None:
    first, second = LAZY["Tally"](), LAZY["Tally"]()
    first.kept["a"] = 1
    assert second.kept == {}


@values.dataclass(frozen=True, slots=True)
class Sent:
    """A value that is sent to another process."""

    x: int
    names: tuple[str, ...] = ()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_frozen_value_can_be_pickled(protocol: int) -> None:
    sent = Sent(3, ("a", "b"))
    assert pickle.loads(pickle.dumps(sent, protocol)) == sent
