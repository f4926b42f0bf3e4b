"""Rules between the keys of a job: before its trainer is asked for data, with its data, and about secrets."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hostcore.errors import Errors
from hostcore.job.forms import object_form
from hostcore.job.names import DATA_SECTIONS
from hostcore.job.pointers import escaped, tokens
from hostcore.job.sections import DeliveryUse, PartSpec, dataset_keys
from hostcore.job.spec import JobSpec
from hostcore.secrets.reference import is_reference, parse, references, remember_secrets, reveal
from hostcore.secrets.scrub import scrub
from hostcore_hookspecs.api_version import API_VERSION, TRAINER_API_VERSION
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.kinds import KINDS

_LISTS: Final = tuple(kind.job_key for kind in KINDS.values() if kind.is_listed)


def check_rules(spec: JobSpec) -> None:
    """Check the rules that hold whatever data the trainer brings.

    :raises Errors: With every rule that is broken; pointers start at the job.
    """
    if errors := [*_broken_rules(spec)]:
        raise Errors(errors)


def _broken_rules(spec: JobSpec) -> Iterator[HostcoreError]:
    asked = spec.trainer_api_version
    if asked != TRAINER_API_VERSION:
        yield HostcoreError(
            f'the job asks for contract "{asked}", but hostcore-hookspecs {API_VERSION} is "{TRAINER_API_VERSION}"',
            code="job.api_version",
            pointer="/trainer_api_version",
            hint=f'write "{TRAINER_API_VERSION}", or install the hostcore that this job was written for',
        )
    if spec.dataset is not None and spec.mock_batches is not None:
        yield _conflict("/mock_batches", '"dataset" and "mock_batches" are both given', "remove one of them")
    if spec.devices is not None and spec.device != "auto":
        yield _conflict("/devices", '"device" and "devices" are both given', "remove one of them")
    listed = spec.devices if isinstance(spec.devices, tuple) else ()
    if len(listed) > 1 and any(one.startswith("auto") for one in listed):
        hint = f'name all devices, or write "auto:{len(listed)}"'
        yield _conflict("/devices", '"auto" leaves all devices to the host; it cannot be in a list', hint)
    for split, data in (("validation", spec.validation), ("test", spec.test)):
        if data is not None and data.shuffle:
            message = f"the {split} data is read once, in file order"
            yield _conflict(f"/{split}/shuffle", message, 'remove "shuffle"')
    if spec.weights is not None and "weights" in spec.inputs:
        message = 'the trainer would find both "weights" and an input of that name in ctx.model_handles["weights"]'
        yield _conflict("/inputs/weights", message, "give the input another name, or remove one of them")


def check_data(spec: JobSpec) -> None:
    """Check the rules between the keys of a job and its data, once all data is known.

    :param spec: With the sections that its trainer brings.
    :raises Errors: With every rule that is broken; pointers start at the job.
    """
    if errors := [*_broken_data_rules(spec)]:
        raise Errors(errors)


def _broken_data_rules(spec: JobSpec) -> Iterator[HostcoreError]:
    if not spec.has_data:
        if not spec.max_steps:
            hint = (
                'give the data, "dataset": {"parquet_paths": ["train.parquet"]}; a trainer that makes its own batches '
                'needs "max_steps"'
            )
            message = 'the job names no "dataset", and its trainer brings none: a job without data needs "max_steps"'
            yield _conflict("/max_steps", message, hint)
        if spec.epochs is not None:
            message = '"epochs" is given, but there is no data to go through'
            yield _conflict("/epochs", message, 'use "max_steps"')
    if spec.validate_every and spec.validation is None:
        hint = 'give "validation" in the form of "dataset", or remove "validate_every"'
        yield _conflict("/validate_every", '"validate_every" is given, but no "validation" data', hint)
    if spec.validate_every == "epoch" and not spec.has_data:
        yield _conflict("/validate_every", "without data there are no epochs", "give a number of steps")
    if spec.checkpoint_every == "epoch" and not spec.has_data:
        hint = 'give a number of steps, or a time: "10m"'
        yield _conflict("/checkpoint_every", "without data there are no epochs", hint)
    try:
        check_global_batch(spec)
    except HostcoreError as error:
        yield error


def check_global_batch(spec: JobSpec) -> None:
    """Check that batches, ranks and micro-batches make up the global batch that the job asks for.

    Apart from the other rules, because an engine may have started the ranks, and the trainer may bring the data: then
    ranks and batches are known last.

    :raises HostcoreError: When they do not.
    """
    asked = spec.global_batch_size
    if asked is None or asked == spec.rows_per_step:
        return
    each = f"batches of {spec.batch_size:,} on {spec.ranks} {'rank' if spec.ranks == 1 else 'ranks'}"
    if spec.accumulate is not None:
        made = f"{each}, {spec.accumulate} a step, are {spec.rows_per_step:,} rows"
        message = f'"global_batch_size" is {asked:,}, but {made}'
        raise _conflict("/global_batch_size", message, 'remove "accumulate" to have it derived, or change one of them')
    rows = spec.batch_size * spec.ranks
    near = sorted({max(asked // rows, 1) * rows, (asked // rows + 1) * rows})
    hint = f"{' or '.join(f'{one:,}' for one in near)} would do"
    raise _conflict("/global_batch_size", f"{each} cannot make up a global batch of {asked:,} rows", hint)


def _conflict(pointer: str, message: str, hint: str) -> HostcoreError:
    """Return the error of keys of a job that do not go together."""
    return HostcoreError(message, code="job.conflict", pointer=pointer, hint=hint)


def job_warnings(spec: JobSpec) -> list[HostcoreError]:
    """Warnings about keys that are allowed and probably not meant; pointers start at the job."""
    warnings = []
    if spec.validation is not None and not spec.validate_every:
        message = '"validation" is given, but "validate_every" is 0: only `hostcore evaluate` reads it'
        warnings.append(HostcoreError(message, code="validation.unused", pointer="/validation"))
    return warnings


def wrong_references(document: Mapping[str, Any]) -> list[HostcoreError]:
    """Return the errors of the references to secrets in a job, short of resolving them: their form and their place."""
    errors = []
    for pointer, reference in references(_without_profiles(document)):
        if not _may_hold_secret(tokens(pointer)):
            errors.append(
                HostcoreError(
                    "a reference to a secret may only stand in the settings of a plugin",
                    code="secret.misplaced",
                    pointer=pointer,
                    hint='those under "hyperparams", "dataset", "callbacks", "reporters", "uploaders", "resolvers", '
                    '"launcher" and "inputs", beside the keys that hostcore reads itself',
                )
            )
            continue
        try:
            parse(reference)
        except HostcoreError as error:
            error.pointer = pointer
            errors.append(error)
    return errors


def keep_secrets(spec: JobSpec, *paths: str | Path) -> None:
    """Hide all secrets of a job from now on, in this process, and require that none stands openly beside them.

    :param paths: The folder of the run, and that of its job.
    :raises Errors: ``secret.open``: the value also stands in the job or in one of the paths, where all can see it, and
        where stars in its place would break the run.
    """
    job = _without_profiles(spec.to_json())
    remember_secrets(job)
    errors = []
    shown = [*_strings(job, ""), *(("", str(path)) for path in paths)]
    for pointer, reference in references(job):
        try:
            value = reveal(reference).strip()
        except HostcoreError:
            continue
        place = next(((at, text) for at, text in shown if value in text), None)
        if place is not None:
            errors.append(_open_secret(pointer, *place))
    if errors:
        raise Errors(errors)


def _without_profiles(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job without its profiles: the selected one has been merged in."""
    return {key: value for key, value in job.items() if key != "profiles"}


def _may_hold_secret(path: list[str]) -> bool:
    """Return True for a place in the settings of a plugin."""
    section, *inside = path or [""]
    if section in _LISTS:
        return len(inside) >= 2 and inside[1] not in object_form(DeliveryUse).keys
    if section == "launcher":
        return len(inside) >= 1 and inside[0] != "use"
    if section in DATA_SECTIONS and inside[:1] == ["of"]:
        return len(inside) >= 3 and inside[2] not in object_form(PartSpec).keys
    if section in DATA_SECTIONS:
        return len(inside) >= 1 and inside[0] not in dataset_keys()
    return section in ("hyperparams", "inputs") and len(inside) >= 1


def _strings(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """Yield every string in a value outside references, keys included, with its pointer."""
    if isinstance(value, str):
        yield pointer, value
    elif isinstance(value, Mapping) and not is_reference(value):
        for key, item in value.items():
            yield f"{pointer}/{escaped(key)}", key
            yield from _strings(item, f"{pointer}/{escaped(key)}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _strings(item, f"{pointer}/{index}")


def _open_secret(pointer: str, at: str, text: str) -> HostcoreError:
    where = f"the job itself, at {at}" if at else f"the path {scrub(text)}"
    return HostcoreError(
        f"the value of this secret also stands in {where}, in plain text",
        code="secret.open",
        pointer=pointer,
        hint="take it out there; or, if it is none, write it into the job as it is",
    )
