"""One call of ``transform_batch``, the same in whatever process it is made: on the loop's thread or ahead of it.

The generator that it is given is NumPy's ``Generator`` over Philox 4x64-10, beside those of the data's order (see
:mod:`hostcore.worker.feed.order`, whose streams are 0 and 1):

===========  ==================================================================
key          (seed, epoch)
counter      (0, 2, position of the batch's first row in the epoch, 0)
===========  ==================================================================
"""

import pickle
import random
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs
import numpy as np

from hostcore.plugins.hooks import Hooks
from hostcore.plugins.load import Component, load_component
from hostcore.plugins.resolve import Selected
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.run_state import Best

_STREAM: Final = 2
#: The epoch that an evaluation draws its random numbers for: no epoch of the training.
EVALUATION: Final = 2**32


class GlobalGenerator(HostcoreError):
    """``transform_batch`` drew from a global random generator: what it returns would depend on who else does."""

    code = "transform.global_generator"


def generator(seed: int, epoch: int, position: int) -> np.random.Generator:
    """The random generator for the batch whose first row has a position in an epoch."""
    return np.random.Generator(np.random.Philox(key=(seed, epoch), counter=(0, _STREAM, position, 0)))


@attrs.frozen(kw_only=True)
class Surroundings:
    """Fields of the run for the context of ``transform_batch``."""

    job: Job
    #: ``train``, ``validation`` or ``test``.
    split: str
    rank: int
    local_rank: int
    world_size: int
    model_handles: Mapping[str, Any]

    @classmethod
    def of(cls, ctx: StepContext, split: str) -> "Surroundings":
        """Those of an attempt."""
        return cls(
            job=ctx.job,
            split=split,
            rank=ctx.rank,
            local_rank=ctx.local_rank,
            world_size=ctx.world_size,
            model_handles=dict(ctx.model_handles),
        )


class TransformCall:
    """``transform_batch``, bound, with a context of its own.

    :param call: Takes raw batch, generator and context.
    :param hyperparams: As the trainer's context has them.
    :param plugin: The trainer, with distribution and version.
    """

    def __init__(self, call: Callable[..., Any], surroundings: Surroundings, *, hyperparams: Any, plugin: str) -> None:
        self._call = call
        self._seed = surroundings.job.seed
        #: The trainer, with distribution and version.
        self.plugin = plugin
        self._calls = 0
        self._ctx = StepContext(
            job=surroundings.job,
            split=surroundings.split,
            hyperparams=hyperparams,
            device="cpu",
            rank=surroundings.rank,
            local_rank=surroundings.local_rank,
            world_size=surroundings.world_size,
            model_handles=surroundings.model_handles,
            host=_NoHost(),
        )

    def __call__(self, raw_batch: Any, epoch: int, position: int, index: int) -> Any:
        """Return the result of ``transform_batch`` for a batch.

        :param position: Of its first row, in the order of the epoch.
        :param index: For ``ctx.batch_index``.
        :raises GlobalGenerator: When the second call has drawn from a global generator.
        """
        rng = generator(self._seed, epoch, position)
        self._ctx.batch_index = index
        self._ctx.rng = rng
        self._calls += 1
        if self._calls == 2:
            # Not the first: what is made once, such as a model, may draw; the loop keeps that from the training.
            # Not every: looking takes longer than the call itself may.
            return self._watched(raw_batch, rng)
        return self._call(raw_batch, rng, self._ctx)

    def _watched(self, raw_batch: Any, rng: np.random.Generator) -> Any:
        before = _global_states()
        result = self._call(raw_batch, rng, self._ctx)
        after = _global_states()
        drawn = [name for name in before if before[name] != after[name]]
        if drawn:
            raise GlobalGenerator(
                f"transform_batch of {self.plugin} draws from the global random generator of {' and '.join(drawn)}",
                hint="draw from rng; code that knows only torch's global generator runs inside `with "
                "torch.random.fork_rng(devices=[]):`, after torch.manual_seed(int(rng.integers(2**63)))",
                plugin=self.plugin,
            )
        return result


@attrs.frozen(kw_only=True)
class Assignment:
    """Everything that a process needs to make the call by itself."""

    #: The trainer, and the callbacks that wrap ``transform_batch``.
    selected: tuple[Selected, ...]
    #: The job file's folder.
    job_dir: Path
    surroundings: Surroundings

    def load(self, components: list[Component]) -> TransformCall:
        """Import the plugins and make components of them, as the worker does.

        :param components: Takes the components, one after the other, so that a failure has its component.
        :raises PluginError: See :func:`load_component`.
        """
        for one in self.selected:  # the worker has checked them
            components.append(load_component(one, job_dir=self.job_dir, import_paths=True, check_objects=False))
        trainer = next(one for one in components if one.ref.kind == "trainer")
        call = bound(Hooks(components), trainer, self.surroundings)
        assert call is not None
        return call


def bound(hooks: Hooks, trainer: Component, surroundings: Surroundings) -> TransformCall | None:
    """The trainer's ``transform_batch`` inside all wrappers; None if it has none."""
    call = hooks.bind("transform_batch", of=trainer)
    if call is None:
        return None
    return TransformCall(call, surroundings, hyperparams=trainer.settings, plugin=trainer.ref.provenance)


def _global_states() -> dict[str, object]:
    states: dict[str, object] = {
        "random": random.getstate(),
        "numpy.random": pickle.dumps(np.random.get_state(legacy=False)),
    }
    if torch := sys.modules.get("torch"):
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states


class _NoHost:
    """The host as ``transform_batch`` sees it: a batch ahead of the loop has no part in the run."""

    def is_stopping(self) -> bool:
        """Never: a transform's process does not know of stop requests."""
        return False

    def any_rank(self, flag: bool) -> bool:  # noqa: ARG002 - the signature of a Host
        """Refuse: the ranks do not meet here."""
        raise _ahead("any_rank")

    def begin_update(self) -> None:
        """Refuse: there is no step here."""
        raise _ahead("begin_update")

    repeats_steps = False

    def repeat_step(self) -> NoReturn:
        """Refuse."""
        raise _ahead("repeat_step")

    def keep_batches_whole(self, reason: str) -> None:  # noqa: ARG002
        """Refuse."""
        raise _ahead("keep_batches_whole")

    def warn(self, message: str) -> None:
        """It becomes a Python warning, in the worker's output."""
        warnings.warn(message, stacklevel=3)

    def record(self, name: str, value: Any) -> None:  # noqa: ARG002
        """Refuse."""
        raise _ahead("record")

    def request_stop(self, reason: str) -> None:  # noqa: ARG002
        """Refuse."""
        raise _ahead("request_stop")

    def request_best(self, best: Best) -> None:  # noqa: ARG002
        """Refuse."""
        raise _ahead("request_best")

    def request_restore(self, step: int, reason: str) -> None:  # noqa: ARG002
        """Refuse."""
        raise _ahead("request_restore")


def _ahead(method: str) -> RuntimeError:
    return RuntimeError(
        f"transform_batch runs ahead of the loop, where there is no {method}(); call it in prepare_batch"
    )
