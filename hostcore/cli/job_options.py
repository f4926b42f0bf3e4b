"""Options that change a job, and that choose where it runs and the folder of its runs."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import attrs
import click

from hostcore.cli import completion
from hostcore_hookspecs.errors import HostcoreError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])
#: The keys of the :class:`AddedOptions` that were found, and of what they change, in a context of click.
_ADDED: Final = "hostcore.cli.added_options"
_CHANGES: Final = "hostcore.cli.changes"


@attrs.frozen(kw_only=True)
class JobOptions:
    """Changes of a job by the options of a command line."""

    #: ``KEY=VALUE`` of ``--set``, in their order.
    overrides: Sequence[str] = ()
    #: ``KEY=VALUE`` of options that are short for a ``--set``, each with the option: ``terminal=false``, ``--quiet``.
    short: Mapping[str, str] = attrs.field(factory=dict)
    profile: str | None = None


@attrs.frozen(kw_only=True)
class AddedOptions:
    """Options that a distribution adds to the commands of jobs: an entry point in ``hostcore.job_options``."""

    options: Sequence[click.Option]
    #: From the values of the options, by name, to what they change: ``KEY=VALUE`` as ``--set`` takes it, with the
    #: option that errors about it name.
    changes: Callable[[Mapping[str, Any]], Mapping[str, str]]


def job_argument(command: F) -> F:
    """Give a command the job file as ``job``: as its argument, or by ``--config``."""

    @functools.wraps(command)
    def with_job(*args: Any, job: Path | None, config: Path | None, **kwargs: Any) -> Any:
        if job and config:
            raise click.UsageError("JOB and --config exclude each other: each of them is the job file")
        if not (job or config):
            raise click.UsageError("Missing argument 'JOB', the job file; --config FILE gives it as well.")
        return command(*args, job=job or config, **kwargs)

    file = click.Path(path_type=Path)
    with_config = click.option("--config", type=file, metavar="FILE", help="The job file, in place of JOB.")(with_job)
    return cast("F", click.argument("job", required=False, type=file)(with_config))


_set = click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a key of the job; repeatable.")


def set_option(command: F) -> F:
    """Add ``--set``; the command gets all options that change a job as one value, ``options``."""

    @functools.wraps(command)
    def with_options(*args: Any, overrides: Sequence[str], profile: str | None = None, **kwargs: Any) -> Any:
        import json

        given = {name: value for name in _SHORT if (value := kwargs.pop(name, None))}
        short = dict(click.get_current_context().meta.get(_CHANGES, {}))
        for name, value in given.items():
            option, key, changed = _SHORT[name]
            short[f"{key}={json.dumps(changed(value))}"] = option
        return command(*args, options=JobOptions(overrides=overrides, profile=profile, short=short), **kwargs)

    return cast("F", _set(with_options))


profile_option = click.option(
    "--profile", metavar="NAME", help="Apply one of the job's profiles.", shell_complete=completion.profiles
)
devices_option = click.option(
    "--devices",
    metavar="LIST",
    help="The devices, comma separated, a rank on each: cuda:0,cuda:1. Or auto:2, for two that are free.",
)
same_plugins_option = click.option(
    "--same-plugins", is_flag=True, help="Refuse to go on with a plugin of another version or content than before."
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help='Show no progress: `"terminal": false` in the job.')
_in_process = click.option("--in-process", is_flag=True, help="Train in this process, for a debugger.")
_detach = click.option("--detach", is_flag=True, help="Have the job's launcher run it, apart from this terminal.")

#: By name: the option, the key of the job that it sets, and the key's value by the option's.
_SHORT: Final[Mapping[str, tuple[str, str, Callable[[Any], Any]]]] = {
    "devices": ("--devices", "devices", lambda text: [device.strip() for device in text.split(",")]),
    "resume": ("--resume", "resume_from_checkpoint", bool),
    "from_checkpoint": ("--from", "resume_from_checkpoint", str),
    "quiet": ("--quiet", "terminal", lambda quiet: not quiet),
    "weights": ("--weights", "weights", str),
}
_OPTIONS = (
    set_option,
    profile_option,
    devices_option,
    click.option("--resume", is_flag=True, help="Go on with the run of the job's run_id; there must be one."),
    click.option(
        "--from",
        "from_checkpoint",
        metavar="CKPT",
        help="Start from another run's checkpoint.",
        shell_complete=completion.files,
    ),
    click.option("--weights", metavar="FILE", help="Initial weights for the trainer.", shell_complete=completion.files),
)


def job_options(command: F) -> F:
    """Add the options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def where_options(command: F) -> F:
    """Add ``--in-process`` and ``--detach``."""

    @functools.wraps(command)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for other in ("detach", "server"):
            if kwargs["in_process"] and kwargs.get(other):
                raise click.UsageError(f"--in-process and --{other} exclude each other")
        return command(*args, **kwargs)

    return cast("F", _in_process(_detach(checked)))


class JobCommand(click.Command):
    """A command with the options of a job, and those that other distributions add, which are discovered when needed.

    The error for an unknown option that may be a key of the job names ``--set``.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with the discovered options of other distributions."""
        return [*super().get_params(ctx), *(option for one in _found(ctx) for option in one.options)]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help, with the options of other distributions, and a line for each broken one."""
        broken = _find(ctx)
        super().format_help(ctx, formatter)
        for error in broken:
            formatter.write_paragraph()
            formatter.write_text(error.message)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete the line; with the options of other distributions, except broken ones."""
        if incomplete.startswith("-"):
            _find(ctx)
        return super().shell_complete(ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            broken = _find(ctx)
            if any(error.option_name in option.opts for one in _found(ctx) for option in one.options):
                return self._parsed(ctx, given)
            if broken:
                raise broken[0] from None
            from hostcore.plugins.published import how_to_install

            if command := how_to_install("option", error.option_name.removeprefix("--")):
                message = f"No such option {error.option_name!r}. `{command}` brings it."
                raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None
            name = error.option_name.removeprefix("--").replace("-", "_")
            key = _key_of(name) or (None if error.possibilities else f"hyperparams.{name}")
            if key is None or not error.option_name.startswith("--"):
                raise
            value = _value_after(error.option_name, given)
            message = f"No such option {error.option_name!r}. Keys of the job are set so: --set {key}={value}"
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None

    def _parsed(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a command line with options of other distributions, and keep their changes."""
        left = super().parse_args(ctx, args)
        for one in _found(ctx):
            values = {str(option.name): ctx.params.pop(str(option.name)) for option in one.options}
            ctx.meta[_CHANGES] = {**ctx.meta.get(_CHANGES, {}), **one.changes(values)}
        return left


def _found(ctx: click.Context) -> Sequence[AddedOptions]:
    found: Sequence[AddedOptions] = ctx.meta.get(_ADDED, ())
    return found


def _find(ctx: click.Context) -> Sequence[HostcoreError]:
    """Discover the options of other distributions; return the errors of broken ones."""
    from hostcore.plugins.extensions import BrokenExtension, load_extension
    from hostcore.plugins.installed import discover
    from hostcore_hookspecs.kinds import JOB_OPTIONS_GROUP

    added: list[AddedOptions] = []
    broken: list[HostcoreError] = []
    for _, registered in sorted(discover().extensions_of(JOB_OPTIONS_GROUP).items()):
        try:
            added.append(load_extension(registered, AddedOptions))
        except BrokenExtension as error:
            broken.append(error)
    ctx.meta[_ADDED] = added
    return broken


def _key_of(name: str) -> str | None:
    """Return the key of a job for a name: ``dataset.batch_size`` for ``batch_size``; None if there is none."""
    from hostcore.job.forms import object_form
    from hostcore.job.sections import dataset_keys
    from hostcore.job.spec import JobSpec

    if name.partition(".")[0] in object_form(JobSpec).keys:
        return name
    return f"dataset.{name}" if name in dataset_keys() else None


def _value_after(option: str, args: list[str]) -> str:
    """Return the value of an option, as ``--option value`` or ``--option=value``."""
    for argument, following in zip(args, [*args[1:], "-"], strict=True):
        name, equals, value = argument.partition("=")
        if name == option:
            return value if equals else "…" if following.startswith("-") else following
    return "…"


def runs_dir_option(command: F) -> F:
    """Add ``--runs-dir``: the command gets the folder of all runs as ``runs``, absolute."""

    @functools.wraps(command)
    def with_folder(*args: Any, runs: Path | None, **kwargs: Any) -> Any:
        from hostcore.runs.directory import runs_dir

        if runs and kwargs.get("server"):
            raise click.UsageError("--runs-dir and --server exclude each other: a service has a folder of its own")
        return command(*args, runs=runs.absolute() if runs else runs_dir(), **kwargs)

    option = click.option(
        "--runs-dir",
        "--log-dir",
        "runs",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="The folder that the run directories are in; HOSTCORE_RUNS_DIR, or ./runs, if not given.",
    )
    return cast("F", option(with_folder))
