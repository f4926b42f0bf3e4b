"""Settings of the launcher ``ray``."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
from annotated_types import Ge, Gt, Le, MinLen

from hostcore_builtin_plugins.http_exchange import check_url
from hostcore_hookspecs import FatalError, InvalidSettings, LaunchContext, Secret

#: As Ray's own programs have it.
_ADDRESS_VARIABLE: Final = "RAY_API_SERVER_ADDRESS"
_DEFAULT_ADDRESS: Final = "http://127.0.0.1:8265"


@attrs.frozen(kw_only=True)
class RaySettings:
    """Cluster, and resources of the job there."""

    address: Annotated[str, MinLen(1)] | None = attrs.field(
        default=None,
        metadata={
            "help": "Of the cluster's dashboard.",
            "default": f"`{_ADDRESS_VARIABLE}`, else `{_DEFAULT_ADDRESS}`",
        },
    )
    token: Secret | None = attrs.field(
        default=None,
        metadata={
            "help": "Of a cluster with token authentication.",
            "default": "`RAY_AUTH_TOKEN`, the file that `RAY_AUTH_TOKEN_PATH` names, or `~/.ray/auth_token`",
        },
    )
    python: Annotated[str, MinLen(1)] | None = attrs.field(
        default=None,
        metadata={"help": "The interpreter on the cluster that has hostcore.", "default": "the path of this one"},
    )
    runtime_env: Mapping[str, Any] = attrs.field(
        factory=dict, metadata={"help": "Of the job, as Ray takes it; without `working_dir`."}
    )
    max_restarts: Annotated[int, Ge(0)] | None = attrs.field(
        default=None,
        metadata={"help": "How often several ranks are started again.", "default": "the job's `max_restarts`"},
    )
    ca_file: Path | None = attrs.field(
        default=None, metadata={"help": "Certificates to trust (PEM).", "default": "the system's"}
    )
    timeout_seconds: Annotated[float, Gt(0), Le(300)] = attrs.field(
        default=30.0, metadata={"help": "For each: connecting, and waiting for an answer of the dashboard."}
    )


def address_of(settings: RaySettings) -> str:
    """Return the URL of the dashboard, without a slash at the end."""
    return (settings.address or os.environ.get(_ADDRESS_VARIABLE) or _DEFAULT_ADDRESS).rstrip("/")


def check_settings(settings: RaySettings) -> None:
    """Refuse settings that make no sense, whatever the job.

    :raises InvalidSettings: The first that does not.
    """
    if settings.address is not None:
        check_url(settings.address, "/address")
    if "working_dir" in settings.runtime_env:
        raise InvalidSettings(
            "/runtime_env/working_dir",
            "the job runs in the folder it was submitted from, which the cluster has to see",
            hint="share that folder with the cluster, or install the trainer's package there",
        )


def check_resources(ctx: LaunchContext) -> None:
    """Refuse what Ray knows nothing of.

    :raises FatalError: With its place in the job.
    """
    resources = ctx.job.resources
    if resources.image:
        raise FatalError(
            "the launcher ray knows no image",
            pointer="/resources/image",
            hint='Ray has its own way: {"use": "ray", "runtime_env": {"image_uri": "…"}}',
        )
    if resources.namespace:
        raise FatalError(
            "the launcher ray knows no namespace",
            pointer="/resources/namespace",
            hint="the address of the dashboard selects the cluster",
        )
