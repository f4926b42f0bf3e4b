"""Plain JSON into attrs classes: strict, complete, and with every error at its place."""

import enum
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType

import attrs
import pytest
from annotated_types import Ge, Gt, Interval, Le, Len, Lt, MinLen, MultipleOf, Predicate

from hostcore.errors import Errors
from hostcore.job.bounds import Pattern
from hostcore.job.forms import structure
from hostcore_hookspecs import HostcoreError, InvalidSettings

if TYPE_CHECKING:
    from decimal import Decimal

Rate = NewType("Rate", float)


class Mode(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


class Level(enum.StrEnum):
    LOW = "low"
    HIGH = "high"


@attrs.frozen(kw_only=True)
class Layer:
    width: Annotated[int, Ge(1)]
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0


@attrs.frozen(kw_only=True)
class Wide(Layer):
    factor: int = 2


@attrs.frozen
class Nothing:
    pass


@attrs.frozen(kw_only=True)
class Tree:
    value: int
    children: "tuple[Tree, ...]" = ()


def errors_of(form: Any, value: Any, **where: Any) -> tuple[HostcoreError, ...]:
    with pytest.raises(Errors) as caught:
        structure(form, value, **where)
    return caught.value.errors


def only_error_of(form: Any, value: Any, **where: Any) -> HostcoreError:
    (error,) = errors_of(form, value, **where)
    return error


@pytest.mark.parametrize(
    ("form", "value", "result"),
    [
        (int, 3, 3),
        (float, 0.5, 0.5),
        (float, 2, 2.0),
        (str, "a", "a"),
        (bool, True, True),
        (None, None, None),
        (Any, {"a": [1, None]}, {"a": [1, None]}),
        (int | None, None, None),
        (int | None, 3, 3),
        (float | int, 3, 3),
        (int | float, 3.5, 3.5),
        (bool | int, True, True),
        (int | Literal["epoch"], "epoch", "epoch"),
        (str | tuple[str, ...], "a", "a"),
        (str | tuple[str, ...], ["a", "b"], ("a", "b")),
        (str | (int | None), None, None),
        (list[int], [1, 2], [1, 2]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[float, float], [1, 2.5], (1.0, 2.5)),
        (tuple[()], [], ()),
        (tuple, [1, "a"], (1, "a")),
        (Sequence[int], [1], (1,)),
        (set[str], ["a", "b"], {"a", "b"}),
        (frozenset[int], [1], frozenset({1})),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (Mapping[str, Any], {"a": [1]}, {"a": [1]}),
        (Mapping[Literal["train", "test"], int], {"train": 1}, {"train": 1}),
        (Mode, "fast", Mode.FAST),
        (Level, "low", Level.LOW),
        (Literal[1, "a"], 1, 1),
        (Rate, 1, 1.0),
        (Annotated[int, Ge(1)], 1, 1),
        (Annotated[float | None, Gt(0)], None, None),
        (Annotated[float, MultipleOf(0.1)], 0.3, 0.3),
        (Annotated[int, MultipleOf(8)], 16, 16),
        (Annotated[float, Gt(0), Le(1)], 1, 1.0),
        (Annotated[str, Pattern("[a-z]+", "a word")], "abc", "abc"),
        (Annotated[list[int], Len(2)], [1, 2], [1, 2]),
        (Annotated[int, {"unhashable": 1}, "words", Ge(1)], 1, 1),
        (Wide, {"width": 3, "factor": 4}, Wide(width=3, factor=4)),
        (Layer, {"width": 2}, Layer(width=2)),
        (list[Layer], [{"width": 2, "dropout": 0.5}], [Layer(width=2, dropout=0.5)]),
        (Layer | int, {"width": 2}, Layer(width=2)),
        (Tree, {"value": 1, "children": [{"value": 2}]}, Tree(value=1, children=(Tree(value=2),))),
    ],
)
def test_a_value_of_the_right_type_is_taken(form: Any, value: Any, result: Any) -> None:
    structured = structure(form, value)
    assert structured == result
    assert type(structured) is type(result)


SCALARS = {"true": True, "integer": 3, "number": 0.5, "string": "3", "null": None, "list": [3], "object": {"a": 3}}
TAKES = {
    int: {"integer"},
    float: {"integer", "number"},
    str: {"string"},
    bool: {"true"},
    None: {"null"},
    list[Any]: {"list"},
    tuple[Any, ...]: {"list"},
    set[Any]: {"list"},
    Mapping[str, Any]: {"object"},
    Path: {"string"},
    int | None: {"integer", "null"},
    str | tuple[int, ...]: {"string", "list"},
    Literal["3"]: {"string"},
    Literal[3]: {"integer"},
    Literal[True]: {"true"},
    Layer: set(),
}


@pytest.mark.parametrize(
    ("form", "kind"), [(form, kind) for form, takes in TAKES.items() for kind in SCALARS if kind not in takes], ids=str
)
def test_nothing_is_coerced(form: Any, kind: str) -> None:
    assert {error.code for error in errors_of(form, SCALARS[kind])} <= {
        "value.type",
        "value.choice",
        "key.unknown",
        "key.missing",
    }


def test_a_number_that_does_not_fit_or_is_none_is_refused_without_being_printed() -> None:
    cases = [(int, 2**63), (int, 10**5000), (float, 10**400), (float, 10**5000)]
    for form in (int, float, float | None, Annotated[float, Gt(0)], list[float]):
        cases += [(form, [one] if form == list[float] else one) for one in (math.nan, math.inf, -math.inf)]
    for form, value in cases:
        error = only_error_of(form, value)
        assert error.code == "value.type"
        assert len(error.message) < 120


@pytest.mark.parametrize(
    ("form", "value", "message"),
    [
        (Annotated[int, Ge(1)], 0, "expected an integer of at least 1, found 0"),
        (Annotated[float, Gt(0)], 0, "expected a number above 0, found 0"),
        (Annotated[float, Gt(0), Lt(1)], 1.0, "expected a number above 0 and below 1, found 1.0"),
        (Annotated[float, Ge(0), Le(1)], 2, "expected a number from 0 to 1, found 2"),
        (Annotated[int, Interval(ge=0, le=3)], 4, "expected an integer from 0 to 3, found 4"),
        (Annotated[int, Le(5)], 6, "expected an integer of at most 5, found 6"),
        (Annotated[int, MultipleOf(8)], 12, "expected an integer that is a multiple of 8, found 12"),
        (Annotated[float, MultipleOf(0.1)], 0.25, "expected a number that is a multiple of 0.1, found 0.25"),
        (Annotated[str, MinLen(1)], "", 'expected a string of at least 1 character, found ""'),
        (Annotated[list[int], Len(2, 3)], [1], "expected a list of integers of 2 to 3 elements, found a list of 1"),
        (Annotated[str, Len(2, 2)], "abc", 'expected a string of exactly 2 characters, found "abc"'),
        (Annotated[str, Pattern("[a-z]+", "a lower-case word")], "A", 'expected a lower-case word, found "A"'),
        (Annotated[str, Pattern("[a-z]+", "a word")], "abc\n", 'expected a word, found "abc\\n"'),
        (Annotated[int, Predicate(lambda n: n % 2 == 0)], 3, "expected an integer for which <lambda> holds, found 3"),
        (Annotated[int, Ge(0)] | Literal["epoch"], -1, 'expected an integer of at least 0 or "epoch", found -1'),
        (Annotated[int | None, Ge(0)], -1, "expected an integer of at least 0, found -1"),
    ],
)
def test_a_bound_that_does_not_hold_is_said_in_words(form: Any, value: Any, message: str) -> None:
    error = only_error_of(form, value)
    assert (error.code, error.message) == ("value.range", message)


@pytest.mark.parametrize(
    ("form", "value", "hint"),
    [
        (int, "32", "write it without the quotes"),
        (float, "1e-4", "write it without the quotes"),
        (bool, "true", "write it without the quotes"),
        (tuple[str, ...], "a", 'write ["a"]'),
        (str, 3, 'write "3", with quotes'),
        (Literal["fp32", "bf16"], "bf61", 'did you mean "bf16"?'),
        (Level, "hihg", 'did you mean "high"?'),
        (int | Literal["epoch"], "epohc", 'did you mean "epoch"?'),
        (Path, "s3://bucket/x", "URIs are not taken here, only paths of this machine"),
        (int, "abc", None),
        (Literal["fp32", "bf16"], "none", None),
    ],
)
def test_the_hint_says_how_to_write_it(form: Any, value: Any, hint: str | None) -> None:
    assert only_error_of(form, value).hint == hint


def test_all_errors_are_told_at_once_in_the_order_of_the_document() -> None:
    @attrs.frozen(kw_only=True)
    class Settings:
        layers: tuple[Layer, ...]
        rates: Mapping[str, float]
        name: str

    value = {"rates": {"a/b": "1", "ok": 1}, "layers": [{"width": 0}, {"width": 1, "droput": 0.5}, 3], "nmae": "x"}
    errors = errors_of(Settings, value, pointer="/hyperparams")
    assert [(error.pointer, error.code) for error in errors] == [
        ("/hyperparams/rates/a~1b", "value.type"),
        ("/hyperparams/layers/0/width", "value.range"),
        ("/hyperparams/layers/1/droput", "key.unknown"),
        ("/hyperparams/layers/2", "value.type"),
        ("/hyperparams/nmae", "key.unknown"),
    ]
    assert errors[2].hint == 'did you mean "dropout"?'
    assert errors[4].hint == 'did you mean "name"?', "and name itself is not reported as missing"


@pytest.mark.parametrize(
    ("form", "value", "pointer", "code", "text"),
    [
        (Layer, {}, "/width", "key.missing", '"width" is missing: expected an integer of at least 1'),
        (Layer, {"width": 1, "zzz": 1}, "/zzz", "key.unknown", "the keys are dropout, width"),
        (Nothing, {"a": 1}, "/a", "key.unknown", 'unknown key "a": no settings are taken here'),
        (
            str | tuple[Layer, ...],
            [{"width": 0}],
            "/0/width",
            "value.range",
            "expected an integer of at least 1, found 0",
        ),
        (set[str], ["a", "a"], "", "value.range", "expected a list without duplicates"),
        (set[Any], [{}], "", "value.type", "a list without duplicates takes no lists or objects"),
    ],
)
def test_an_error_has_its_place(form: Any, value: Any, pointer: str, code: str, text: str) -> None:
    error = only_error_of(form, value)
    assert (error.pointer, error.code) == (pointer, code)
    assert text in f"{error.message}; {error.hint}"


def test_keys_that_others_read_are_suggested_but_only_for_the_outermost_object() -> None:
    @attrs.frozen(kw_only=True)
    class Settings:
        inner: Layer | None = None

    errors = errors_of(Settings, {"batchsize": 1, "inner": {"width": 1, "batchsize": 1}}, elsewhere=("batch_size",))
    assert [error.hint for error in errors] == ['did you mean "batch_size"?', "the keys are dropout, width"]


def test_relative_paths_start_at_the_base_folder() -> None:
    assert structure(Path, "data/x", base_dir=Path("/job")) == Path("/job/data/x")
    assert structure(Path, "/data/x", base_dir=Path("/job")) == Path("/data/x")
    assert structure(Path, "data/x") == Path("data/x")


def test_every_validator_and_converter_that_refuses_becomes_an_error_at_its_field() -> None:
    @attrs.frozen(kw_only=True)
    class Settings:
        low: int = attrs.field(validator=attrs.validators.ge(2))
        high: int = attrs.field()
        names: tuple[str, ...] = attrs.field(default=(), converter=lambda names: tuple(sorted(names)))
        kind: str = attrs.field(default="a", validator=attrs.validators.in_(["a", "b"]))
        when: int = attrs.field(default=0, converter=lambda text: int(text, 16) if text else 0)

        @high.validator
        def _above_low(self, _attribute: Any, high: int) -> None:
            if high <= self.low:
                raise ValueError(f"high must be above low ({self.low})")

    errors = errors_of(Settings, {"low": 1, "high": 0, "kind": "c"}, pointer="/hyperparams")
    assert [error.pointer for error in errors] == ["/hyperparams/low", "/hyperparams/high", "/hyperparams/kind"]
    assert {error.code for error in errors} == {"value.invalid"}
    assert errors[1].message == "high must be above low (1)"
    assert "'low' must be >= 2" in errors[0].message
    assert only_error_of(Settings, {"low": 3, "high": 4, "when": 3}).pointer == "/when"


@pytest.mark.parametrize("raised", [ValueError("low is above high"), ZeroDivisionError("a defect")])
def test_what_a_class_refuses_is_an_error_at_the_object_and_any_other_exception_its_own(raised: Exception) -> None:
    @attrs.frozen
    class Settings:
        low: int = 0

        def __attrs_post_init__(self) -> None:
            raise raised

    if isinstance(raised, ValueError):
        error = only_error_of(Settings, {"low": 3}, pointer="/callbacks/0")
        assert (error.pointer, error.message) == ("/callbacks/0", "low is above high")
    else:
        with pytest.raises(ZeroDivisionError, match="a defect"):
            structure(Settings, {})


@pytest.mark.parametrize("inner", ["/sizes/0", "sizes/0"])
def test_the_place_of_the_settings_is_put_in_front_of_a_plugins_pointer(inner: str) -> None:
    @attrs.frozen(kw_only=True)
    class Settings:
        sizes: tuple[int, ...]

        def __attrs_post_init__(self) -> None:
            raise InvalidSettings(inner, "sizes must grow", hint="sort them")

    @attrs.frozen(kw_only=True)
    class Outer:
        model: Settings

    error = only_error_of(Outer, {"model": {"sizes": [1]}}, pointer="/hyperparams")
    assert (error.pointer, error.code) == ("/hyperparams/model/sizes/0", "settings.invalid")
    assert error.hint == "sort them"


def test_an_annotation_that_cannot_be_resolved_names_the_class() -> None:
    @attrs.frozen
    class Settings:
        price: "Decimal"  # imported for type checkers only

    error = only_error_of(Settings, {"price": 1}, pointer="/hyperparams")
    assert (error.code, error.pointer) == ("settings.class", "/hyperparams")
    assert "Settings cannot be resolved: name 'Decimal' is not defined" in error.message
    assert "TYPE_CHECKING" in (error.hint or "")


@pytest.mark.parametrize("form", [bytes, complex, type, dict[str, complex], object()], ids="bctdo")
def test_a_type_that_json_cannot_give_is_an_error_of_the_class(form: Any) -> None:
    value = {"a": 1} if form == dict[str, complex] else 1
    assert only_error_of(form, value).code == "settings.class"


def test_private_fields_go_by_their_alias_and_computed_ones_are_no_keys() -> None:
    @attrs.frozen(kw_only=True)
    class Settings:
        _size: int = 1
        area: int = attrs.field(init=False, default=0)

    assert structure(Settings, {"size": 2})._size == 2
    assert only_error_of(Settings, {"area": 3}).code == "key.unknown"
