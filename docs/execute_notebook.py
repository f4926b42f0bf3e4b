"""Execute a notebook of the documentation in an empty folder, and store what its cells put out.

    python docs/execute_notebook.py docs/tutorials/first-run.ipynb

Needs hostcore, its extra ``test`` and the example ``digits`` with its extra ``data`` in this environment.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def executed(notebook: Path, folder: Path) -> nbformat.NotebookNode:
    """A notebook with the outputs of all its cells.

    :param folder: Where its kernel works, and leaves its files.
    :raises nbclient.exceptions.CellExecutionError: When a cell fails that is not tagged ``raises-exception``.
    """
    read = nbformat.read(notebook, as_version=4)
    scripts = Path(sys.executable).parent  # for cells that call `!hostcore`
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    for name in ("HOSTCORE_RUNS_DIR", "HOSTCORE_CONFIG", "MPLBACKEND"):
        environment.pop(name, None)
    client = NotebookClient(
        read,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,
        record_timing=False,
    )
    return client.execute(env=environment)


def main() -> None:
    """Execute the notebooks that are named, and write them."""
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(Path(name), Path(folder))
        notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        nbformat.write(notebook, name)


if __name__ == "__main__":
    main()
