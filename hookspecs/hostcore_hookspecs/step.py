"""The values of trainers: what a step returns, where a state is stored, and what a trainer declares that it can do."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import attrs

if TYPE_CHECKING:
    from torch import Tensor

_SUFFIX: Final = ".safetensors"
#: What safetensors itself keeps under a name among the tensors.
_RESERVED: Final = "__metadata__"


@attrs.frozen(kw_only=True)
class StepControl:
    """Wishes of a trainer about what happens after this step."""

    #: Do not record metrics or samples of this step. A checkpoint is never skipped.
    skip_cadence_emit: bool = False
    #: Record the metrics of this step, although ``metric_every`` does not come to it: those of an epoch, for instance.
    #: On all ranks alike. It has no effect in a job whose ``metric_every`` is 0.
    record_metrics: bool = False
    #: Wait this long before the next step; a stop interrupts the wait.
    backoff_seconds: float | None = None


# Not frozen: attrs sets each field of a frozen object by a call, which would double what one costs at every step.
@attrs.define(kw_only=True, eq=False)
class StepResult:
    """Result of one step. To be read, not changed: a wrapper around a step returns another one.

    An object of another class with the attributes ``metrics`` and, if it likes, ``debug``, ``control`` and ``weight``
    is accepted as well.
    """

    #: Scalars or zero-dimensional tensors, by name. Tensors are not read before a cadence step, so returning one does
    #: not synchronise a GPU. ``loss`` is recorded as ``train/loss``, ``lr`` as ``train/lr``.
    metrics: "Mapping[str, float | int | Tensor]" = attrs.field(factory=dict)
    #: Plain JSON that helps to find out about a step; of ``train_step`` it is recorded with the metrics, of the first
    #: rank. Numbers may be tensors with one element, unread before a cadence step; one that is not finite becomes null.
    #: What is no JSON, or more than 16 KiB of it, fails the run.
    debug: Mapping[str, Any] = attrs.field(factory=dict)
    control: StepControl | None = None
    #: Samples or tokens behind the metrics. None: the rows of the batch.
    weight: float | None = None


@attrs.frozen(kw_only=True)
class Capabilities:
    """Abilities of a trainer beyond one rank in fp32. A job that asks for more is invalid before it starts.

    Assigned in the class: ``CAPABILITIES = Capabilities(precisions=("fp32", "bf16"))``.
    """

    #: ``train_step`` takes a tuple of prepared batches when the job sets ``accumulate``.
    accumulate: bool = False
    #: Of ``fp32``, ``bf16``, ``fp16``.
    precisions: tuple[str, ...] = ("fp32",)
    #: May run on several ranks.
    distributed: bool = False
    #: A step for which memory ran out can be made again, with its batch in parts. It promises three things.
    #: ``train_step`` calls ``ctx.begin_update()`` once, when all gradients are there; until then it changes nothing but
    #: gradients and the global random generators, and calls no collective (or ``configure`` has called
    #: ``ctx.keep_batches_whole``). It takes a tuple of any number of prepared
    #: batches of any sizes, weighted so that the update is that of one batch of all their rows, up to rounding: needs
    #: ``accumulate``, and no batch normalisation in training mode. ``prepare_batch`` gets what rows can be taken of:
    #: record batches or, from ``transform_batch``, mappings of arrays, tensors or lists with an element for each row,
    #: and changes none of these in place.
    split_on_oom: bool = False
    #: A step can be made again up to its update. Until the first ``step()`` of an optimizer, ``train_step`` changes
    #: nothing but gradients, buffers of the modules in ``state``, and the global random generators; it begins with
    #: gradients of zero or none. Or the state is a :class:`KeepsStep`. For the callback ``replay-check``. Since 1.1.
    repeatable: bool = False

    def __attrs_post_init__(self) -> None:
        if self.split_on_oom and not self.accumulate:
            raise ValueError("split_on_oom needs accumulate=True: train_step gets the parts of a batch as a tuple")


@runtime_checkable
class KeepsStep(Protocol):
    """State of a ``repeatable`` trainer whose steps change more before their update, and can put it back. Since 1.1."""

    def keep_step(self, prepared_batch: Any) -> Callable[[], None]:
        """Keep what the step of a batch may change up to its update, beside weights, gradients, buffers and generators.

        :return: Puts it back; called each time before the step is made again, with gradients of zero.
        :raises HostcoreError: The steps of this run cannot be made again.
        """
        ...


def _below_trainer(_file: "TensorFile", _attribute: "attrs.Attribute[str]", path: str) -> None:
    parts = PurePosixPath(path).parts
    if path != "/".join(parts) or ".." in parts or not re.fullmatch(rf"[^/\0][^\0]*{re.escape(_SUFFIX)}", path):
        raise ValueError(
            f"{path!r} is no name of a tensor file: it is a plain path below trainer/ that ends with {_SUFFIX},"
            " such as model.safetensors"
        )


def _named(_file: "TensorFile", _attribute: "attrs.Attribute[Any]", tensors: "Mapping[str, Tensor]") -> None:
    for name in tensors:
        if not isinstance(name, str) or name == _RESERVED:
            raise ValueError(f"{name!r} cannot be the name of a tensor in a safetensors file")


def _texts(_file: "TensorFile", _attribute: "attrs.Attribute[Any]", metadata: Mapping[str, str]) -> None:
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ValueError(f"the metadata of a safetensors file are texts, and {key!r} is {value!r}")


@attrs.frozen(eq=False)
class TensorFile(Mapping[str, "Tensor"]):
    """Tensors of a state that a checkpoint stores in ``trainer/<path>`` under their own names.

    ::

        def state_dict(self, state):
            weights = TensorFile("model.safetensors", state["model"].state_dict())
            return {"model": weights, "optimizer": state["optimizer"].state_dict()}

    The host copies them between two steps and writes them in the background, as it does with all of the state; what
    else the program needs, such as ``config.json``, ``save_checkpoint`` writes beside it. So
    ``from_pretrained("<checkpoint>/trainer")`` reads what the run itself resumes from, and it is stored once.
    ``load_state_dict`` gets a plain dictionary of the same names and tensors. A callback's ``callback_state`` may
    have such files, too: averaged weights, for instance.

    A tensor that is there under two names, as tied weights are, is stored under the first; ``load_state_dict`` gets
    both. Only whole tensors can be placed: of one that is spread over ranks, ``full_tensor()``.

    :param path: Below ``trainer/`` of the checkpoint, with ``/``; it ends with ``.safetensors``.
    :param tensors: By name; not copied before the checkpoint is made.
    :param metadata: Texts for the header of the file, beside ``{"format": "pt"}``, which is always there.
    :raises ValueError: When the path, a name or the metadata cannot be stored.
    """

    path: str = attrs.field(validator=_below_trainer)
    tensors: "Mapping[str, Tensor]" = attrs.field(validator=_named, repr=False)
    metadata: Mapping[str, str] = attrs.field(factory=dict, validator=_texts)

    def __getitem__(self, name: str) -> "Tensor":
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)
