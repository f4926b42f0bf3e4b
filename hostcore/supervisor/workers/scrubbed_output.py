"""The output of a worker whose job has secrets, scrubbed on its way into its file by a small process in between.

``python -m hostcore.supervisor.workers.scrubbed_output`` reads the secrets from its standard input, a JSON list in the
first line, and then what the worker and all that it has started write; it writes to its standard output, which is the
file. A pipe and a process, not a thread here: what C code and child processes write is scrubbed, too, and the last
lines of a worker arrive even if this supervisor is killed before it. It ends when the last writer has closed the pipe.
"""

import json
import os
import signal
import subprocess
import sys
from typing import Final

from hostcore.secrets.scrub import HIDDEN, Stream, encoded, forms_of, known

_CHUNK_BYTES: Final = 64 * 1024
#: How long to wait for the last output of a worker that has ended; a process that it has started may still write.
_LAST_WORDS_SECONDS: Final = 2.0


class ScrubbedOutput:
    """A pipe into a file that scrubs what goes through it. To be closed once the writer has it.

    :param file: A descriptor.
    :raises OSError: When the process cannot be started.
    """

    def __init__(self, file: int) -> None:
        ours, self._pipe = os.pipe()
        try:
            self._process = subprocess.Popen(
                # As the worker: no module of the working directory may shadow one of the host.
                [sys.executable, "-P", "-m", __name__],
                stdin=ours,
                stdout=file,
                stderr=subprocess.DEVNULL,
                # Neither a Ctrl-C in the terminal nor the end of the worker's group is meant.
                start_new_session=True,
            )
        except OSError:
            self.close()
            raise
        finally:
            os.close(ours)
        self._tell(known())

    def fileno(self) -> int:
        """Where to write."""
        return self._pipe

    def _tell(self, secrets: tuple[str, ...]) -> None:
        line = json.dumps(secrets).encode() + b"\n"
        while line:
            line = line[os.write(self._pipe, line) :]

    def close(self) -> None:
        """Keep no end of the pipe here."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def settle(self) -> None:
        """Wait a moment until all that was written is in the file."""
        try:
            self._process.wait(_LAST_WORDS_SECONDS)
        except subprocess.TimeoutExpired:
            return


def main() -> None:
    """Scrub standard input into standard output."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # its end is that of the writers
    source = os.fdopen(0, "rb")
    forms = encoded(forms_of(json.loads(source.readline())))
    stream = Stream(forms, HIDDEN.encode())
    while piece := source.read1(_CHUNK_BYTES):
        _write(stream.feed(piece))
    _write(stream.finish())


def _write(text: bytes) -> None:
    """Write all of it. On a full disk it is lost, as the worker's own words would be, and the worker goes on."""
    try:
        while text:
            text = text[os.write(1, text) :]
    except OSError:
        return


if __name__ == "__main__":
    main()
