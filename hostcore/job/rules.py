"""What must hold between the keys of a job."""

from typing import TYPE_CHECKING

from hostcore.errors import Errors
from hostcore_hookspecs.api_version import API_VERSION, TRAINER_API_VERSION
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from hostcore.job.spec import JobSpec


def check_rules(spec: "JobSpec") -> None:
    """Check all rules.

    :raises Errors: With every rule that is broken; pointers start at the job.
    """
    errors = [*_version_rules(spec), *_data_rules(spec), *_device_rules(spec)]
    if errors:
        raise Errors(errors)


def _version_rules(spec: "JobSpec") -> list[HostcoreError]:
    asked = spec.trainer_api_version
    if asked == TRAINER_API_VERSION:
        return []
    return [
        HostcoreError(
            f'the job asks for contract "{asked}", but hostcore-hookspecs {API_VERSION} is "{TRAINER_API_VERSION}"',
            code="job.api_version",
            pointer="/trainer_api_version",
            hint=f'write "{TRAINER_API_VERSION}", or install the hostcore that this job was written for',
        )
    ]


def _data_rules(spec: "JobSpec") -> list[HostcoreError]:
    if spec.dataset is not None and spec.mock_batches is not None:
        return [_conflict("/mock_batches", '"dataset" and "mock_batches" are both given', "remove one of them")]
    if spec.dataset is not None or spec.mock_batches is not None:
        return []
    errors = []
    if not spec.max_steps:
        hint = 'give "max_steps", or data: "dataset" or "mock_batches"'
        errors.append(_conflict("/max_steps", 'a job without data needs "max_steps"', hint))
    if spec.epochs is not None:
        errors.append(_conflict("/epochs", '"epochs" is given, but there is no data to go through', 'use "max_steps"'))
    return errors


def _device_rules(spec: "JobSpec") -> list[HostcoreError]:
    errors = []
    if spec.devices is not None and spec.device != "auto":
        errors.append(_conflict("/devices", '"device" and "devices" are both given', "remove one of them"))
    if len(spec.requested_devices) > 1 and "auto" in spec.requested_devices:
        errors.append(_conflict("/devices", '"auto" stands for one device; it cannot be in a list', "name the devices"))
    return errors


def _conflict(pointer: str, message: str, hint: str) -> HostcoreError:
    return HostcoreError(message, code="job.conflict", pointer=pointer, hint=hint)
