"""``hostcore schema``."""

from pathlib import Path

import click

from hostcore.cli import completion
from hostcore.cli.named_plugins import describe_named, environment_named, environment_option
from hostcore.cli.output import print_json, reports_errors


@click.command("schema", short_help="Print the JSON Schema of job files.")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completion.plugins())
@click.option("--events", is_flag=True, help="Print the schema of the lines of events.jsonl instead.")
@environment_option
@reports_errors
def schema_command(names: tuple[str, ...], *, events: bool, environment: Path | None) -> None:
    """Print the JSON Schema (2020-12) of job files, with the settings of the plugins NAME… in it.

    For editors that complete and check: save it, and name it in the editor's settings.
    """
    from hostcore.errors import Errors
    from hostcore.job.schema import file_schema

    if events:
        from hostcore.cli.event_schema import event_schema

        print_json(event_schema())
        return
    if not names:
        print_json(file_schema({}))
        return
    descriptions = describe_named(names, environment_named(environment))
    errors = [error for one in descriptions for error in one.errors]
    if errors:
        raise Errors(errors)
    print_json(file_schema({one.name: (one.ref.kind, one.settings_schema) for one in descriptions}))
