"""A trainer that only notes the rows that it is given. Named by import path in the jobs of the checks."""

from collections.abc import Mapping
from typing import Any, Final

from hostcore_hookspecs import StepResult

#: The rows of all steps since it was cleared, as text. The runs of the kit are in its own process.
SEEN: Final[list[str]] = []


class RowReader:
    """Trains nothing."""

    def setup(self) -> None:
        """Nothing to prepare."""

    def configure(self) -> dict[str, int]:
        """How many rows it has seen."""
        return {"rows": 0}

    def prepare_batch(self, raw_batch: Any) -> Any:
        """The batch as it is."""
        return raw_batch

    def train_step(self, prepared_batch: Any, state: dict[str, int]) -> StepResult:
        """Note the rows."""
        from hostcore_conformance.checks.data_source.stage import rows_of

        SEEN.extend(rows_of(prepared_batch))
        state["rows"] += prepared_batch.num_rows
        return StepResult(metrics={"loss": 0.0})

    def state_dict(self, state: dict[str, int]) -> dict[str, object]:
        """See configure."""
        return dict(state)

    def load_state_dict(self, state: dict[str, int], payload: Mapping[str, Any]) -> None:
        """See configure."""
        state.update(payload)
