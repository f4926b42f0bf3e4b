"""Checks of a trainer's state_dict, and of load_state_dict, which takes it back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hostcore_conformance.check import check
from hostcore_conformance.checks.trainer.stage import Stage, on_stage
from hostcore_conformance.differences import ValueDifference, first_difference
from hostcore_conformance.errors import ConformanceError
from hostcore_conformance.subject import Subject

_STATE: Final = "state"
_STEPS: Final = 3
_GENERATORS: Final = {
    "python": "Python's random",
    "numpy": "NumPy's global generator",
    "torch": "torch's CPU generator",
    "cuda": "torch's CUDA generators",
}


def _trained_payload(subject: Subject) -> Path:
    """A folder with the state of a training of some steps, as a checkpoint stores it."""
    return subject.shared("trainer.payload", lambda: _make_payload(subject))


def _make_payload(subject: Subject) -> Path:
    from hostcore.checkpoints.snapshot import write_state

    folder = subject.folder()

    def scene(stage: Stage) -> None:
        list(stage.steps(_STEPS))
        write_state(folder, _STATE, stage.call("state_dict", stage.state))

    on_stage(subject, scene)
    return folder


def _stored(folder: Path) -> Any:
    """Return the argument of ``load_state_dict``: tensors of their own each time."""
    from hostcore.checkpoints.state import read_state

    return read_state(folder, _STATE)


def _as_stored(subject: Subject, state: Any) -> Any:
    """A state as it comes back from a checkpoint."""
    from hostcore.checkpoints.snapshot import write_state

    folder = subject.folder()
    write_state(folder, _STATE, state)
    return _stored(folder)


def _load(stage: Stage, payload: Any) -> None:
    stage.call("load_state_dict", stage.state, payload, stage.ctx)


def _require_same(found: ValueDifference | None, *, expected: str, fix: str) -> None:
    if found is not None:
        raise ConformanceError(
            expected=expected, got=f"another value at {found.path}: {found.expected} before, {found.got} now", fix=fix
        )


@check("trainer.state_is_storable")
def state_is_storable(subject: Subject) -> None:
    """A checkpoint can store all that state_dict returns.

    The kit trains some steps, calls state_dict, and encodes what it returns the way checkpoints do: as JSON and
    safetensors, never as pickle, so that reading a checkpoint runs no code. A dictionary may hold tensors, numbers,
    strings, bytes, NumPy arrays, None, and lists, tuples and dictionaries of these.

    What is refused is mostly an object in place of its state: the model itself, a settings object, a generator, a
    defaultdict, a set. Return what it can be rebuilt from: model.state_dict(), attrs.asdict(settings),
    generator.get_state(), dict(counts), sorted(names).
    """
    from hostcore.checkpoints.encoding import encode_state
    from hostcore.checkpoints.errors import UnstorableState

    def scene(stage: Stage) -> Any:
        list(stage.steps(_STEPS))
        payload = stage.call("state_dict", stage.state)
        if isinstance(payload, dict):
            try:
                encode_state(payload)
            except UnstorableState as error:
                return error
        return payload

    found = on_stage(subject, scene)
    if isinstance(found, UnstorableState):
        path = (found.pointer or "").strip("/").replace("/", ".")
        raise ConformanceError(
            expected="a state_dict of values that a checkpoint can store",
            got=f"at {path or 'its top'}: {found.message.partition(' is ')[2] or found.message}",
            fix="Return what it can be rebuilt from (its state_dict(), numbers, strings, tensors), and rebuild it in"
            " load_state_dict.",
        )
    if not isinstance(found, dict):
        raise ConformanceError(
            expected="a dictionary from state_dict",
            got=f"{type(found).__name__}",
            fix='Return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), ...}.',
        )
    if not found:
        raise ConformanceError(
            expected="everything that is needed to go on from state_dict",
            got="an empty dictionary",
            fix='Return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), ...}.',
        )


@check("trainer.state_dict_reads_only", requires=("trainer.state_is_storable",))
def state_dict_reads_only(subject: Subject) -> None:
    """Asking for the state changes nothing.

    state_dict is called twice: both calls return the same, and none draws a random number. A run with a checkpoint at
    every step is so the same run as one without; and after a resume the random numbers are those that would have come.

    What breaks it: a counter that counts checkpoints, a buffer that is emptied on the way out, weights that are
    averaged or moved in place, a random number in the payload.
    """
    from hostcore.worker import randomness

    def scene(stage: Stage) -> tuple[Any, Any, Any, Any]:
        list(stage.steps(_STEPS))
        before = randomness.capture()
        first = _as_stored(subject, stage.call("state_dict", stage.state))
        second = _as_stored(subject, stage.call("state_dict", stage.state))
        return first, second, before, randomness.capture()

    first, second, before, after = on_stage(subject, scene)
    _require_same(
        first_difference(first, second),
        expected="two calls of state_dict, one after the other, to return the same",
        fix="Let state_dict only read: what it changes makes a run with checkpoints another run.",
    )
    drawn = first_difference(before, after)
    if drawn is not None:
        raise ConformanceError(
            expected="state_dict to draw no random numbers",
            got=f"another state of {_GENERATORS.get(drawn.path.partition('.')[0], drawn.path)} after it",
            fix="Draw nothing in state_dict: a run with checkpoints would train on other random numbers.",
        )


@check("trainer.state_round_trips", requires=("trainer.state_is_storable",))
def state_round_trips(subject: Subject) -> None:
    """The state that state_dict returned is returned again after load_state_dict.

    The kit trains some steps, stores the state as a checkpoint does, and loads it into another instance, whose state
    was configured with another seed: so all its weights differ. Then state_dict must return what was stored, bit for
    bit. The message names the first value that differs.

    What breaks it: a part that is stored and not loaded (the optimizer, the scheduler, an average of the weights),
    strict=False, which hides that names do not match, loading into a copy or into a model that is not in the state,
    and a conversion on the way (to half precision, to float).
    """
    payload = _stored(_trained_payload(subject))

    def scene(stage: Stage) -> Any:
        _load(stage, _stored(_trained_payload(subject)))
        return _as_stored(subject, stage.call("state_dict", stage.state))

    seed = subject.job.get("seed", 0) + 1
    found = first_difference(payload, on_stage(subject, scene, seed=seed))
    if found is None:
        return
    top = found.path.partition(".")[0]
    raise ConformanceError(
        expected="state_dict to return, after load_state_dict, what was loaded",
        got=f"another value at {found.path}: {found.expected} stored, {found.got} after loading",
        fix=f"Load payload[{top!r}] into the very objects of the state that configure returned"
        " (and with strict=True, which is the default).",
    )


@check("trainer.state_goes_back", requires=("trainer.state_round_trips",))
def state_goes_back(subject: Subject) -> None:
    """An earlier state can be loaded into one that has trained on.

    The kit loads a state, trains two more steps, and loads the same state again: state_dict must return it once more.
    That is what request_restore does, as early stopping with restore_best asks for it at the end of a run.

    What breaks it: a load_state_dict that only fills what is empty, that works once, or that adds to lists and
    counters in place of setting them.
    """
    payload = _stored(_trained_payload(subject))

    def scene(stage: Stage) -> Any:
        _load(stage, _stored(_trained_payload(subject)))
        list(stage.steps(2))
        _load(stage, _stored(_trained_payload(subject)))
        return _as_stored(subject, stage.call("state_dict", stage.state))

    found = first_difference(payload, on_stage(subject, scene))
    if found is not None:
        raise ConformanceError(
            expected="the earlier state back, after two more steps and a second load_state_dict",
            got=f"another value at {found.path}: {found.expected} stored, {found.got} after loading",
            fix="Set everything in load_state_dict to the values of the payload, whatever was there before.",
        )


@check("trainer.load_leaves_payload", requires=("trainer.state_round_trips",))
def load_leaves_payload(subject: Subject) -> None:
    """Loading leaves the payload as it is.

    The host hands the same payload to load_state_dict and then to load_checkpoint; callbacks that wrap the methods
    see it, too. So it must hold after load_state_dict what it held before.

    What breaks it is payload.pop("scheduler"), del payload[...], or a value that is converted in place. Read with
    payload["scheduler"], or work on dict(payload).
    """
    payload = _stored(_trained_payload(subject))

    def scene(stage: Stage) -> None:
        _load(stage, payload)

    on_stage(subject, scene)
    found = first_difference(_stored(_trained_payload(subject)), payload)
    if found is not None:
        raise ConformanceError(
            expected="the payload of load_state_dict to be after the call what it was before",
            got=f"at {found.path}: {found.expected} before, {found.got} after",
            fix=f"Read payload[{found.path.partition('.')[0]!r}] in place of popping or changing it:"
            " load_checkpoint gets the same payload.",
        )


@check("trainer.load_draws_nothing", requires=("trainer.state_round_trips",), level="should")
def load_draws_nothing(subject: Subject) -> None:
    """Loading a state in the middle of a run draws no random numbers.

    request_restore loads a state while a run is active: model and optimizer go back, the random states do not. Then
    load_state_dict is called between two steps, and what it draws the training lacks.

    After a resume it does no harm, since the host restores the random states behind it.
    """
    from hostcore.worker import randomness

    def scene(stage: Stage) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        payload, before = _stored(_trained_payload(subject)), randomness.capture()
        _load(stage, payload)
        return before, randomness.capture()

    drawn = first_difference(*on_stage(subject, scene))
    if drawn is not None:
        raise ConformanceError(
            expected="load_state_dict to draw no random numbers",
            got=f"another state of {_GENERATORS.get(drawn.path.partition('.')[0], drawn.path)} after it",
            fix="Load in place, without building or initialising anything anew; or use a generator of its own.",
        )
