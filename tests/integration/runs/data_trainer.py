"""A trainer that brings its data, whose source is beside it in the same module."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import torch

from hostcore_hookspecs import Capabilities, DataContext, InvalidSettings, Shard, StepResult, hookimpl


class Numbers:
    """A data source: the numbers from a first one on."""

    @attrs.frozen(kw_only=True)
    class Settings:
        rows: int
        first: int = 0
        note: str = ""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def open_dataset(self) -> "Rows":
        return Rows(self._settings.first, self._settings.rows)


@attrs.frozen
class Rows:
    first: int
    rows: int
    schema = pa.schema([("x", pa.float64())])

    def shards(self) -> Sequence[Shard]:
        return [Shard(id="all", num_rows=self.rows, version=str(self.first))]

    def read_shard(self, shard: Shard, columns: Any, offset: int) -> Iterator[pa.RecordBatch]:
        values = np.arange(self.first + offset, self.first + self.rows, dtype=np.float64)
        yield pa.record_batch([values], schema=self.schema)


#: What :class:`Trainer` brings if its hyperparameters name no file that says it.
SECTIONS = {
    "dataset": {"source": "data_trainer:Numbers", "rows": 26, "batch_size": 4, "shuffle": True},
    "validation": {"source": "data_trainer:Numbers", "rows": 10, "first": 100, "batch_size": 3},
}


class Trainer:
    """Sees the rows that it is given: its loss tells which and in which order."""

    CAPABILITIES = Capabilities(distributed=True)

    @attrs.frozen(kw_only=True)
    class Hyperparams:
        #: A file with the sections to bring, as a dataset's own files would change them.
        sections: Path | None = None
        #: Named in an error.
        wrong: str = ""

    def data_sections(self, hyperparams: Hyperparams, ctx: DataContext) -> Mapping[str, Mapping[str, Any]]:
        assert ctx.world_size > ctx.rank
        assert Path(ctx.cache_dir).is_absolute()
        if hyperparams.wrong == "settings":
            raise InvalidSettings("wrong", "that is wrong")
        if hyperparams.wrong:
            raise ValueError(hyperparams.wrong)
        if hyperparams.sections is not None:
            found: Any = json.loads(hyperparams.sections.read_text())
            return found.get(str(ctx.rank), found) if isinstance(found, dict) else found  # type: ignore[no-any-return]
        return SECTIONS

    def setup(self, ctx: Any) -> None:
        torch.set_num_threads(1)
        assert ctx.job.dataset is not None
        self.batch_size = ctx.job.batch_size

    def configure(self, ctx: Any) -> dict[str, Any]:
        return {"seen": 0.0}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return raw_batch["x"].to_numpy()

    def train_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        assert len(prepared_batch) == self.batch_size
        state["seen"] = 0.5 * state["seen"] + float(prepared_batch @ np.arange(1.0, len(prepared_batch) + 1.0))
        return StepResult(metrics={"loss": state["seen"]})

    def validate_step(self, prepared_batch: Any, state: Any, ctx: Any) -> StepResult:
        return StepResult(metrics={"x": float(prepared_batch.mean())}, weight=len(prepared_batch))

    def state_dict(self, state: Any) -> dict[str, Any]:
        return dict(state)

    def load_state_dict(self, state: Any, payload: Any) -> None:
        state.update(payload)


class Shorter:
    """A callback that lets the trainer bring fewer rows."""

    @hookimpl(wrapper=True)
    def data_sections(self) -> Any:
        sections = yield
        return {**sections, "dataset": {**sections["dataset"], "rows": 8}}
