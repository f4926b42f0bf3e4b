"""Conditions on the columns of rows: ``label == 3``."""

import operator
import re
from typing import Any, Final

import attrs
import orjson
import pyarrow as pa

from hostcore_hookspecs import InvalidData

_OPERATORS: Final = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_CONDITION: Final = re.compile(r"\s*(.+?)\s*(==|!=|<=|>=|<|>)\s*(.+?)\s*", re.DOTALL)


@attrs.frozen(kw_only=True)
class RowCondition:
    """A comparison of a column with a value."""

    column: str
    operator: str
    value: Any

    @classmethod
    def parse(cls, text: str) -> "RowCondition":
        """Parse ``column op value``; the value is JSON, or else text.

        :raises InvalidData: The text is no condition.
        """
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise InvalidData(
                f"{text!r} is no condition",
                hint=f"write column, operator and value, such as 'label == 3'; operators: {' '.join(_OPERATORS)}",
            )
        try:
            value = orjson.loads(found[3])
        except orjson.JSONDecodeError:
            value = found[3]
        return cls(column=found[1], operator=found[2], value=value)

    def matches(self, rows: pa.Table) -> list[bool]:
        """Return for each row whether it meets the condition; a null meets none.

        :raises InvalidData: There is no such column, or its values cannot be compared with this one.
        """
        if self.column not in rows.column_names:
            raise InvalidData(
                f"the rows have no column {self.column!r}", hint=f"columns are: {', '.join(rows.column_names)}"
            )
        compare = _OPERATORS[self.operator]
        try:
            return [one is not None and bool(compare(one, self.value)) for one in rows.column(self.column).to_pylist()]
        except TypeError as error:
            raise InvalidData(f"the column {self.column!r} cannot be compared with {self.value!r}: {error}") from error
