"""Plugins that let out what they were trusted with: in every way, at every moment, and above all when they fail.

``LEAKY_FAIL`` in the environment names the places where they raise: ``trainer.setup``, several with commas.
"""

import json
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs

from hostcore_hookspecs import Secret, Shard, StepResult, UploadReceipt


@attrs.frozen(kw_only=True)
class Trusted:
    """The settings of all of them."""

    token: Secret
    text: str
    more: tuple[str, ...] = ()
    options: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def values(self) -> list[str]:
        return [self.token.value, self.text, *self.more, *self.options.values()]


def fails_at(place: str) -> bool:
    return place in os.environ.get("LEAKY_FAIL", "").split(",")


def spill(place: str, values: list[str], *, from_c: bool = True) -> None:
    """Tell all values in all ways; and raise with them, if this is the place for it."""
    print(place, values)
    for value in values:
        print(value, json.dumps({"value": value}), quote(value, safe=""), file=sys.stderr)
        logging.getLogger("leaky").error("%s: %s", place, value)
        warnings.warn(f"{place}: {value}", stacklevel=1)
        thread = threading.Thread(target=print, args=(f"from a thread: {value}",))
        thread.start()
        thread.join()
        half = len(value) // 2
        print(value[:half], end="", flush=True)
        print(value[half:], flush=True)
        raw = value.encode()
        for piece in (raw[: len(raw) // 2], raw[len(raw) // 2 :], b"\n") if from_c else ():
            os.write(1, piece)
    if fails_at(place):
        try:
            raise KeyError(values[0])
        except KeyError as error:
            raise RuntimeError(f"{place} was given {values} and {' '.join(values)}") from error


class Trainer:
    Hyperparams = Trusted

    def __init__(self) -> None:
        # It has no settings of its own here; a job that knows its neighbours' is worse.
        spill("trainer.construct", [value for name, value in os.environ.items() if name.startswith("PLANTED_")])

    def setup(self, ctx: Any) -> None:
        spill("trainer.setup", ctx.hyperparams.values)
        print("the job has", dict(ctx.job.hyperparams))

    def configure(self, ctx: Any) -> dict[str, Any]:
        return {"x": 1.0}

    def prepare_batch(self, raw_batch: Any, state: Any, ctx: Any) -> Any:
        return raw_batch

    def train_step(self, prepared_batch: Any, state: dict[str, Any], ctx: Any) -> StepResult:
        step = ctx.run_state.step + 1
        if step == 2:
            spill("trainer.step", ctx.hyperparams.values)
        if os.environ.get("LEAKY_SLOW") and step >= 3:
            Path(f"{ctx.job.run_id}.pid").write_text(str(os.getpid()))
            time.sleep(0.02)
        return StepResult(metrics={"loss": 1.0 / step, f"of {ctx.hyperparams.text}": 1.0})

    def state_dict(self, state: Any) -> dict[str, Any]:
        values = [value for name, value in os.environ.items() if name.startswith("PLANTED_")]
        if fails_at("trainer.state"):
            return {"values": {values[0]: threading.Lock()}}
        return dict(state)

    def load_state_dict(self, state: Any, payload: Any) -> None:
        state.update(payload)

    def save_checkpoint(self, state: Any, step: int, output_dir: str, final: bool, ctx: Any) -> None:
        spill("trainer.save_checkpoint", ctx.hyperparams.values)

    def generate_sample(self, state: Any, step: int, request: Any, output_dir: str, ctx: Any) -> dict[str, Any]:
        spill("trainer.sample", ctx.hyperparams.values)
        return {"prompt": ctx.hyperparams.text}

    def teardown(self, state: Any, ctx: Any) -> None:
        print("more than a pipe holds" * 10_000)
        spill("trainer.teardown", ctx.hyperparams.values)


class Rows:
    def __init__(self, values: list[str]) -> None:
        self.values = values
        import pyarrow as pa

        self.schema = pa.schema([("x", pa.int64())])

    def shards(self) -> list[Shard]:
        return [Shard(id=f"shard-{number}", num_rows=8) for number in range(4)]

    def read_shard(self, shard: Shard, columns: Any, offset: int) -> Iterator[Any]:
        import pyarrow as pa

        spill("data.read", self.values)
        yield pa.RecordBatch.from_pydict({"x": list(range(offset, shard.num_rows))}, schema=self.schema)


class Leaky:
    """A plugin of a kind; what the supervisor calls does not write past Python."""

    Settings = Trusted
    KIND, FROM_C = "", False

    def __init__(self, settings: Trusted) -> None:
        self.values = settings.values
        print(settings)
        self.spill("construct")

    def spill(self, moment: str) -> None:
        spill(f"{self.KIND}.{moment}", self.values, from_c=self.FROM_C)


class Source(Leaky):
    KIND, FROM_C = "data", True

    def open_dataset(self, dataset: Any, ctx: Any) -> Rows:
        print("the dataset is", dict(dataset))
        self.spill("open")
        return Rows(self.values)


class Callback(Leaky):
    KIND, FROM_C = "callback", True

    def on_batch_end(self, run_state: Any, ctx: Any) -> None:
        if run_state.step == 1:
            self.spill("step")
            ctx.warn(f"careful with {self.values}")
            if fails_at("stop"):
                ctx.request_stop(f"because of {self.values[0]}")

    def on_exception(self, error: BaseException, run_state: Any, ctx: Any) -> None:
        raise ValueError(f"on top of that, {self.values}") from error


class Reporter(Leaky):
    KIND = "reporter"

    def open(self, ctx: Any) -> None:
        self.spill("open")

    def report_event(self, event: Any) -> None:
        if event.name == "run_started":
            self.spill("event")

    def close(self) -> None:
        self.spill("close")


class Uploader(Leaky):
    KIND = "uploader"

    def open(self, ctx: Any) -> None:
        self.spill("open")

    def upload_artifact(self, artifact: Any) -> UploadReceipt:
        self.spill("upload")
        uri = f"memory://{self.values[0]}/{artifact.relative_path}"
        return UploadReceipt(uri=uri, size=artifact.size, sha256=artifact.sha256)


class Resolver(Leaky):
    KIND = "resolver"

    def resolve_ref(self, ref: str, ctx: Any) -> str | None:
        self.spill("resolve")
        return str(Path(ref).absolute())
