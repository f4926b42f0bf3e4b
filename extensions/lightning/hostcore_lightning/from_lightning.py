"""``hostcore from-lightning``."""

from pathlib import Path

import click

from hostcore.cli.output import echo, echo_json, reports_errors


@click.command("from-lightning", short_help="Write the job of a configuration of LightningCLI.")
@click.argument("configs", metavar="CONFIG...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--cli", metavar="PATH", help="Your LightningCLI, or the function that makes it: main:cli_main.")
@click.option("--module", metavar="PATH", help="The LightningModule, if the file names none: main:Net.")
@click.option("--datamodule", metavar="PATH", help="The LightningDataModule, likewise.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write this file, which must not exist.")
@reports_errors
def from_lightning_command(
    configs: tuple[Path, ...], *, cli: str | None, module: str | None, datamodule: str | None, output: Path | None
) -> None:
    """Write the job that trains what `python main.py fit --config CONFIG` does; of several files, the last counts.

    Precision, epochs, accumulation and the like become keys of the job. The rest is its hyperparameter `config`, which
    LightningCLI itself reads in the run. What a job does otherwise is reported on standard error, with where it goes.
    No code of yours is imported: `hostcore validate` does that.
    """
    from hostcore_lightning.converting import converted, write_new, written

    job, notes = converted(configs, cli=cli, module=module, datamodule=datamodule)
    text = written(job, configs[-1])
    if output is None:
        echo_json(text)
    else:
        write_new(output, text)
        echo(f"{output} is written: hostcore validate {output}; hostcore run {output}", err=True)
    for note in notes:
        echo(note, err=True)
