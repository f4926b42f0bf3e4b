"""The resolver contract: turns a reference to a model or a dataset into a URI that can be fetched."""

import attrs

from hostcore_hookspecs.job import Job
from hostcore_hookspecs.markers import hookspec

REQUIRED = ("resolve_ref",)


@attrs.frozen(kw_only=True)
class ResolveContext:
    """Context of a resolver."""

    job: Job
    #: The key of the job's ``inputs``: ``base_model_ref``.
    input_name: str


@hookspec(firstresult=True)
def resolve_ref(ref: str, ctx: ResolveContext) -> str | None:
    """Called for every reference in the job's ``inputs``. Stops at the first non-None result.

    :param ref: The reference as the job gives it: ``org/model:latest``.
    :param ctx: About the run.
    :return: A URI that fsspec can open, or None if the reference is not of this resolver's kind.
    :raises Exception: The job does not start; the resolvers behind it are not asked.
    """
