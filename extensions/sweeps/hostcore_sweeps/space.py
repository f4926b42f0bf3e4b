"""The space of a sweep: what a trial's job may hold at each of its JSON pointers, and when.

A parameter is named by its pointer (RFC 6901). Parameters are asked in an order in which those that a condition names
come first.
"""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
from annotated_types import Gt, MaxLen, MinLen

from hostcore.job.json_values import MAX_DEPTH
from hostcore.job.pointers import Problems, at_or_below, escaped
from hostcore.job.wording import did_you_mean, found, near, one_of
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

#: The values of a trial, by pointer; those whose condition does not hold are missing.
Values = Mapping[str, Any]
_KINDS = ("uniform", "log_uniform", "integer", "log_integer", "choice")
#: Samplers square numbers, and count in floats: beyond these bounds they overflow, or never come to an end.
_LARGEST: Final = 1e150
_LARGEST_INTEGER: Final = 2**53
_MOST_STEPS: Final = 10**9
_MOST_CHOICES: Final = 10_000
#: Choices that a hint lists.
_SHOWN: Final = 6


@attrs.frozen(kw_only=True)
class Parameter:
    """Range of one place of the job. Exactly one of the first five keys is set."""

    uniform: tuple[float, float] | None = attrs.field(
        default=None, metadata={"help": "A number between two, both included."}
    )
    log_uniform: tuple[float, float] | None = attrs.field(
        default=None, metadata={"help": "A number between two, whose logarithm is uniform."}
    )
    integer: tuple[int, int] | None = attrs.field(
        default=None, metadata={"help": "An integer between two, both included."}
    )
    log_integer: tuple[int, int] | None = attrs.field(
        default=None, metadata={"help": "An integer between two, whose logarithm is uniform."}
    )
    choice: Annotated[tuple[Any, ...], MinLen(1), MaxLen(_MOST_CHOICES)] | None = attrs.field(
        default=None, metadata={"help": "One of these values, which may be any JSON."}
    )
    step: Annotated[float, Gt(0)] | None = attrs.field(
        default=None, metadata={"help": "With `uniform` and `integer`: multiples of it above the lower bound alone."}
    )
    when: Mapping[str, Any] | None = attrs.field(
        default=None,
        metadata={
            "help": "A condition: the parameter exists where the parameters at these pointers have these values (one, "
            "or a list of them; a list that is itself a choice is one). Elsewhere the job stays as it is there."
        },
    )

    def __attrs_post_init__(self) -> None:
        given = [name for name in _KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of {one_of(_KINDS)} says what it may be, found {len(given)}")
        if self.choice is not None:
            encoded = [_encoded(value) for value in self.choice]
            if len(set(encoded)) < len(encoded):
                raise ValueError("choice has a value twice")
        else:
            self._check_range()
        if self.step is not None and self.kind not in ("uniform", "integer"):
            raise ValueError(f"step goes with uniform and integer, not with {self.kind}")
        if self.step is not None and self.kind == "integer" and not float(self.step).is_integer():
            raise ValueError(f"the step of an integer is an integer, found {self.step}")

    def _check_range(self) -> None:
        low, high = self.range
        if low > high:
            raise ValueError(f"{self.kind} begins with the lower bound, found {low} and {high}")
        if self.kind.startswith("log") and low <= 0:
            raise ValueError(f"the bounds of {self.kind} are above 0, found {low}")
        largest = _LARGEST_INTEGER if "integer" in self.kind else _LARGEST
        if max(abs(low), abs(high)) > largest:
            raise ValueError(f"the bounds of {self.kind} are between -{largest:g} and {largest:g}")
        if self.step is not None and (high - low) / self.step > _MOST_STEPS:
            raise ValueError(f"step makes more than {_MOST_STEPS:,} values of it; without a step, any number is one")

    @property
    def kind(self) -> str:
        """Key that defines the range."""
        return next(name for name in _KINDS if getattr(self, name) is not None)

    @property
    def range(self) -> tuple[float, float]:
        """Its bounds; only of numbers."""
        low, high = getattr(self, self.kind)
        return low, high

    @property
    def count(self) -> int | None:
        """Number of possible values; None for a continuous range."""
        if self.choice is not None:
            return len(self.choice)
        if self.kind == "uniform" and self.step is None:
            return None
        if self.kind == "log_uniform":
            return None
        low, high = self.range
        return math.floor((high - low) / (self.step or 1) + 1e-9) + 1

    def all_values(self) -> Iterator[Any]:
        """Each value that it may have, in order; only of what is not continuous."""
        if self.choice is not None:
            yield from self.choice
            return
        for index in range(self.count or 0):
            yield self._step_at(index)

    @property
    def first(self) -> Any:
        """One value that it may have."""
        return self.choice[0] if self.choice is not None else self.nearest(self.range[0])

    def nearest(self, number: float) -> float:
        """The value that it may have and that is next to a number; only of numbers."""
        low, high = self.range
        number = min(max(number, low), high)
        if self.step is not None:
            return self._step_at(min(round((number - low) / self.step), (self.count or 1) - 1))
        return round(number) if "integer" in self.kind else number

    def _step_at(self, index: int) -> float:
        """The value so many steps above the lower bound."""
        low, high = self.range
        number = min(low + index * (self.step or 1), high)  # 6 * 0.1 is above 0.6
        return int(number) if "integer" in self.kind else number

    @property
    def _highest(self) -> float:
        """The upper bound, or the last step below it: Optuna warns of any other."""
        low, high = self.range
        if self.step is None or self.count is None:
            return high
        return float(Decimal(str(low)) + (self.count - 1) * Decimal(str(self.step)))

    def distribution(self) -> "BaseDistribution":
        """The parameter as Optuna calls it."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.choice is not None:
            return CategoricalDistribution([self.to_optuna(value) for value in self.choice])
        low, high = self.range[0], self._highest
        log = self.kind.startswith("log")
        if "integer" in self.kind:
            return IntDistribution(int(low), int(high), log=log, step=int(self.step or 1))
        return FloatDistribution(low, high, log=log, step=self.step)

    def to_optuna(self, value: Any) -> Any:
        """A value as Optuna keeps it: it takes scalars, and for it ``1`` and ``true`` are equal."""
        return _encoded(value) if self._is_encoded else value

    def of_optuna(self, value: Any) -> Any:
        """A value of :meth:`to_optuna` as the job has it."""
        if self.choice is None:
            return value
        return next(choice for choice in self.choice if self.to_optuna(choice) == value)

    @cached_property
    def _is_encoded(self) -> bool:
        if self.choice is None:
            return False
        return len({type(value) for value in self.choice}) > 1 or not isinstance(
            self.choice[0], bool | int | float | str
        )

    def suggested(self, trial: "Trial", pointer: str) -> Any:
        """Return the suggestion of Optuna's sampler."""
        if self.choice is not None:
            options = [self.to_optuna(value) for value in self.choice]
            return self.of_optuna(trial.suggest_categorical(pointer, options))
        low, high = self.range[0], self._highest
        log = self.kind.startswith("log")
        if "integer" in self.kind:
            return trial.suggest_int(pointer, int(low), int(high), log=log, step=int(self.step or 1))
        return trial.suggest_float(pointer, low, high, log=log, step=self.step)

    def may_be(self, value: Any) -> bool:
        """Return whether a trial may have exactly this value; no number of what is continuous."""
        if self.choice is not None:
            return any(_equal(one, value) for one in self.choice)
        if self.count is None or isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return _equal(self.nearest(value), value)

    def wanted(self, value: Any) -> Sequence[Any]:
        """The values that a condition on this parameter names: one, or a list of them."""
        return value if isinstance(value, list | tuple) and not self.may_be(value) else [value]

    def is_active(self, values: Values, space: "Mapping[str, Parameter]") -> bool:
        """Return whether the parameter's condition holds.

        :param values: Of the parameters before it.
        """
        return all(
            pointer in values and any(_equal(values[pointer], one) for one in space[pointer].wanted(wanted))
            for pointer, wanted in (self.when or {}).items()
        )


def _encoded(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _equal(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON value; numbers up to the rounding of floats."""
    numbers = [value for value in (one, other) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == 2 and float in map(type, numbers):
        return math.isclose(one, other, rel_tol=1e-12)
    return _encoded(one) == _encoded(other)


def ordered(space: Mapping[str, Parameter]) -> list[str]:
    """The pointers of a space, in an order in which those that a condition names come first.

    :raises Errors: ``sweep.space``: everything that is wrong between the parameters.
    """
    problems = Problems()
    for pointer, parameter in space.items():
        _check_pointer(pointer, space, problems)
        for other in parameter.when or {}:
            if other not in space:
                hint = did_you_mean(near(other, [name for name in space if name != pointer]))
                message = f"the condition names {found(other)}, which is no parameter of the space"
                problems.add(HostcoreError(message, code="sweep.space", pointer="/when", hint=hint), pointer)
    problems.check()
    order: list[str] = []
    while rest := [pointer for pointer in space if pointer not in order]:
        ready = [pointer for pointer in rest if set(space[pointer].when or {}) <= set(order)]
        if not ready:
            message = f"the conditions of {one_of(rest)} name one another"
            raise HostcoreError(message, code="sweep.space", pointer="")
        order += ready
    for pointer in order:
        _check_condition(pointer, space, problems)
    problems.check()
    return order


def _check_condition(pointer: str, space: Mapping[str, Parameter], problems: Problems) -> None:
    """See that a condition names values that the other parameters may have, and that it can hold as a whole."""
    for other, wanted in (space[pointer].when or {}).items():
        for one in space[other].wanted(wanted):
            if not space[other].may_be(one):
                message = f"{found(other)} is never {found(one)}, so this condition cannot hold"
                error = HostcoreError(message, code="sweep.space", pointer=f"/when/{escaped(other)}")
                error.hint = _what_it_may_be(space[other], one)
                problems.add(error, pointer)
    allowed: dict[str, list[Any]] = {}
    for other, values in _all_wanted(pointer, space):
        before = allowed.get(other, values)
        allowed[other] = [one for one in values if any(_equal(one, known) for known in before)]
    for other in [name for name, values in allowed.items() if not values]:
        message = f"the conditions behind this one want {found(other)} to be two things at once"
        problems.add(HostcoreError(message, code="sweep.space", pointer="/when"), pointer)


def _all_wanted(pointer: str, space: Mapping[str, Parameter]) -> Iterator[tuple[str, list[Any]]]:
    """Return the values that a condition wants, with the conditions of the parameters that it names."""
    for other, wanted in (space[pointer].when or {}).items():
        yield other, list(space[other].wanted(wanted))
        yield from _all_wanted(other, space)


def _what_it_may_be(parameter: Parameter, value: Any) -> str:
    if parameter.choice is not None:
        words = [one for one in parameter.choice if isinstance(one, str)]
        return did_you_mean(near(value, words) if isinstance(value, str) else ()) or (
            f"it is {one_of(parameter.choice[:_SHOWN])}{', …' if len(parameter.choice) > _SHOWN else ''}"
        )
    if parameter.count is None:
        return "a condition names values that can be counted: give that parameter a step, or a choice"
    low, high = parameter.range
    steps = f" in steps of {parameter.step:g}" if parameter.step is not None else ""
    return f"it is from {low:g} to {high:g}{steps}"


def _check_pointer(pointer: str, space: Mapping[str, Parameter], problems: Problems) -> None:
    hint = None
    if not pointer.startswith("/") or "=" in pointer or pointer.endswith("/"):
        what = f"{found(pointer)} is no JSON pointer into a job"
        hint = 'for example "/hyperparams/learning_rate"'
    elif pointer.count("/") > MAX_DEPTH:
        what = f"the pointer has {pointer.count('/'):,} levels; a job is nested at most {MAX_DEPTH} levels deep"
        pointer = f"{pointer[:40]}…"
    elif pointer in ("/run_id", "/resume_from_checkpoint") or at_or_below(pointer, "/labels"):
        what = f"{found(pointer)} is for the sweep to set"
    elif above := [other for other in space if other != pointer and at_or_below(pointer, other)]:
        what = f"{found(pointer)} lies inside {found(above[0])}, which is a parameter as well"
    else:
        return
    problems.add(HostcoreError(what, code="sweep.space", pointer="", hint=hint), pointer)


def suggest(space: Mapping[str, Parameter], trial: "Trial") -> dict[str, Any]:
    """Values that a sampler of Optuna suggests.

    :param space: In the order of :func:`ordered`.
    """
    values: dict[str, Any] = {}
    for pointer, parameter in space.items():
        if parameter.is_active(values, space):
            values[pointer] = parameter.suggested(trial, pointer)
    return values


def grid(space: Mapping[str, Parameter]) -> Iterator[dict[str, Any]]:
    """Every combination of values once, the last parameter changing first.

    :param space: Without a continuous parameter; in the order of :func:`ordered`.
    """

    def below(pointers: tuple[str, ...], values: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if not pointers:
            yield values
            return
        pointer, *rest = pointers
        if not space[pointer].is_active(values, space):
            yield from below(tuple(rest), values)
            return
        for value in space[pointer].all_values():
            yield from below(tuple(rest), {**values, pointer: value})

    return below(tuple(space), {})


def grid_at(space: Mapping[str, Parameter], number: int) -> dict[str, Any] | None:
    """One combination of :func:`grid`; None behind the last."""
    return next(itertools.islice(grid(space), number, None), None)


def to_distributions(space: Mapping[str, Parameter], values: Values) -> dict[str, "BaseDistribution"]:
    """The distributions of those parameters that a trial has."""
    return {pointer: space[pointer].distribution() for pointer in values}


def to_params(space: Mapping[str, Parameter], values: Values) -> dict[str, Any]:
    """A trial's values as Optuna keeps them."""
    return {pointer: space[pointer].to_optuna(value) for pointer, value in values.items()}
