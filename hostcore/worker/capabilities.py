"""Whether a trainer can do what the job asks for."""

from collections.abc import Iterator

from hostcore.job.spec import JobSpec
from hostcore.plugins.component import Component
from hostcore.plugins.errors import named
from hostcore_hookspecs.errors import HostcoreError


def missing_capabilities(trainer: Component, spec: JobSpec) -> Iterator[HostcoreError]:
    """What the job asks for and the trainer does not declare or implement."""
    can = trainer.capabilities
    if spec.precision not in can.precisions:
        known = ", ".join(can.precisions)
        yield _missing(trainer, "/precision", f"it does not train in {spec.precision}", f"it declares: {known}")
    if spec.micro_batches > 1 and not can.accumulate:
        pointer = "/accumulate" if spec.accumulate else "/global_batch_size"
        message = f"it does not accumulate gradients, and a step has {spec.micro_batches} micro-batches"
        yield _missing(trainer, pointer, message, "its train_step takes one batch; use a larger batch_size")
    if spec.ranks > 1 and not can.distributed:
        message = f"it does not train on several ranks, and the job has {spec.ranks}"
        yield _missing(trainer, "/devices", message, "name a single device")
    needs = {
        "/validation": (spec.validation is not None, "validate_step"),
        "/test": (spec.test is not None, "test_step"),
        "/samples": (bool(spec.samples), "generate_sample"),
    }
    for pointer, (needed, method) in needs.items():
        if needed and method not in trainer.hooks:
            key = pointer.removeprefix("/")
            message, hint = f'it has no {method}, which "{key}" needs', f'give it one, or remove "{key}"'
            yield _missing(trainer, pointer, message, hint)


def _missing(trainer: Component, pointer: str, message: str, hint: str) -> HostcoreError:
    return HostcoreError(
        f"{named(trainer.ref)} cannot do this: {message}",
        code="trainer.capability",
        pointer=pointer,
        hint=hint,
        plugin=trainer.ref.provenance,
    )
