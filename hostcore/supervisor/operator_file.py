"""The operator's file, ``HOSTCORE_CONFIG`` (TOML): what the operator of this machine or service allows and asks for.

It holds for every command on the machine and for the service. Without the variable, everything has its default.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
from annotated_types import Ge, Gt, Le

from hostcore.errors import all_errors
from hostcore.events.regular_file import open_regular
from hostcore.job.forms import structure
from hostcore.job.names import BUILTIN
from hostcore.job.sections import ComponentUse, Text
from hostcore_hookspecs.errors import HostcoreError

VARIABLE: Final = "HOSTCORE_CONFIG"


class InvalidOperatorFile(HostcoreError):
    """The operator's file cannot be read, or has an invalid value."""

    code = "operator.invalid"


@attrs.frozen(kw_only=True)
class ServiceSettings:
    """``[service]``: the process of ``hostcore serve``."""

    database: Text | None = attrs.field(
        default=None,
        metadata={
            "help": "An SQLAlchemy URL: `postgresql+psycopg://…`.",
            "default": "`HOSTCORE_DATABASE_URL`, which wins over it; else SQLite in the folder of the runs",
        },
    )
    poll_seconds: Annotated[float, Gt(0), Le(60)] = attrs.field(
        default=2.0,
        metadata={
            "help": "How often a job's launcher is asked how it goes; after its first minute a fifth as often, "
            "unless it is `local`."
        },
    )
    launches_at_once: Annotated[int, Ge(1), Le(64)] = attrs.field(
        default=8, metadata={"help": "How many launchers are called at the same time."}
    )
    local_at_once: Annotated[int, Ge(0)] = attrs.field(
        default=4,
        metadata={
            "help": "How many jobs of the launcher `local` run at the same time, over all services of the database; "
            "the others wait. 0: no limit."
        },
    )
    cancel_grace_seconds: Annotated[float, Ge(0)] = attrs.field(
        default=60.0, metadata={"help": "How long a cancelled job may take before its launcher ends it by force."}
    )


@attrs.frozen(kw_only=True)
class HttpSettings:
    """``[http]``: limits of jobs that come over HTTP. Everything else is refused."""

    data_roots: tuple[Path, ...] = attrs.field(
        default=(),
        metadata={
            "help": "Folders that jobs may read: where local paths and `file:` URIs may lie. Nothing is written there."
        },
    )
    checkpoint_roots: tuple[Path, ...] = attrs.field(
        default=(),
        metadata={
            "help": "Folders that jobs may write to, and read: for `checkpoint_base_uri`, uploaders, reporters and "
            "callbacks."
        },
    )
    images: tuple[Text, ...] = attrs.field(
        default=(), metadata={"help": "Patterns (`*`) of the container images that jobs may name."}
    )
    env: tuple[Text, ...] = attrs.field(
        default=(), metadata={"help": "Patterns of the environment variables that jobs may set."}
    )
    requirements: tuple[Text, ...] = attrs.field(
        default=(),
        metadata={
            "help": "Patterns of the packages that the `environment` of a job may require, by name; they and what they "
            "need come from the index that uv is configured with where the job runs, or from one of `indexes`."
        },
    )
    indexes: tuple[Text, ...] = attrs.field(
        default=(),
        metadata={"help": "The package indexes that the `environment` of a job may name, each as jobs write it."},
    )
    interpreters: tuple[Text, ...] = attrs.field(
        default=(),
        metadata={"help": "Patterns of the Pythons that the `environment` of a job may name as `interpreter`."},
    )
    labels: tuple[Text, ...] = attrs.field(
        default=("*",), metadata={"help": "Patterns of the keys that `labels` may have."}
    )
    annotations: tuple[Text, ...] = attrs.field(
        default=("*",), metadata={"help": "Patterns of the keys that `annotations` may have."}
    )
    extra_args: tuple[Text, ...] = attrs.field(
        default=("*",), metadata={"help": "Patterns of the names that `extra_args` of `POST /train` may have."}
    )
    secrets: tuple[Text, ...] = attrs.field(
        default=(), metadata={"help": "Patterns of the secrets that jobs may name: `env:HF_TOKEN`."}
    )
    plugins: tuple[Text, ...] = attrs.field(
        default=("*",),
        metadata={
            "help": "Patterns of the plugins that jobs may name, as `name` or `distribution/name`. A plugin that is "
            "written out as `distribution/name` may also run code that a job names: `hostcore-lightning/lightning`."
        },
    )
    hosts: tuple[Text, ...] = attrs.field(
        default=(),
        metadata={
            "help": "Patterns of the servers that jobs may name, with a port (`host:9000`) or without. A server may "
            "redirect a request to any address, so open those that you trust."
        },
    )
    import_paths: bool = attrs.field(
        default=False,
        metadata={
            "help": "Whether jobs may bring code of their own choice: plugins by import path, objects in the settings "
            "of plugins, and plugins that run code or programs which a job names, such as `process` and `lightning`."
        },
    )
    chaos: bool = attrs.field(
        default=False, metadata={"help": "Whether jobs may inject faults into their own runs, with the plugin `chaos`."}
    )
    requests_per_minute: Annotated[int, Ge(0)] = attrs.field(
        default=600, metadata={"help": "Of one client; 0: no limit."}
    )
    max_submitted: Annotated[int, Ge(0)] = attrs.field(
        default=0, metadata={"help": "Jobs that may wait or run at the same time; 0: no limit."}
    )


@attrs.frozen(kw_only=True)
class OperatorFile:
    """Contents of the file."""

    service: ServiceSettings = attrs.field(factory=ServiceSettings)
    http: HttpSettings = attrs.field(factory=HttpSettings)
    policies: tuple[ComponentUse, ...] = attrs.field(
        default=(), metadata={"help": "Asked about every job; a job can only add to them."}
    )
    launcher: ComponentUse = attrs.field(
        default=ComponentUse(use=f"{BUILTIN}local"),
        metadata={"help": "Of jobs that come over HTTP and name none."},
    )
    launchers: Mapping[str, Mapping[str, Any]] = attrs.field(
        factory=dict, metadata={"help": "Settings by the name of a launcher; a job from HTTP cannot change them."}
    )
    #: None if there is no file.
    path: Path | None = attrs.field(default=None, metadata={"key": False})

    @property
    def folder(self) -> Path:
        """Folder where its relative paths start."""
        return self.path.parent if self.path else Path.cwd()


def read_operator_file(environment: Mapping[str, str] = os.environ) -> OperatorFile:
    """Read the operator's file; the defaults if there is none.

    :raises HostcoreError: Everything that is wrong with it, each with the file and the place in it.
    """
    named = environment.get(VARIABLE)
    if not named:
        return OperatorFile()
    path = Path(named).absolute()
    try:
        with open_regular(path, follow_links=True) as file:
            document = tomllib.load(file)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidOperatorFile(
            f"the operator's file cannot be read: {problem}", file=str(path), hint=f"{VARIABLE} names it; it is TOML"
        ) from error
    try:
        found = structure(OperatorFile, document, base_dir=path.parent)
    except HostcoreError as error:
        for one in all_errors(error):
            one.file = one.file or str(path)
        raise
    return attrs.evolve(found, path=path)
