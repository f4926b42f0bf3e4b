"""The worker's entry: ``python -m hostcore.worker CONTRACT FD [OUTPUT]``, started by the supervisor in its own session.

OUTPUT are three descriptors, by which it copies its output into its file when the supervisor is gone.

The signal handlers come before every other import, so that a signal during the seconds in which torch is imported is
noted as well; and so does the line to the supervisor, whose end is the supervisor's.

The garbage collector rests while torch and the worker are imported: it would take a tenth of that time and find next to
nothing. It does not look at what they have made later either (``gc.freeze``), so that no step waits for that.
"""

from hostcore.worker.stop import StopSwitch, noted_by


def main() -> int:
    """Run a worker over the inherited socket FD."""
    stop = StopSwitch()
    with noted_by(stop):
        import faulthandler
        import gc
        import os
        import socket
        import sys
        from pathlib import Path

        from hostcore.interruption import end_session
        from hostcore.runs.channel import Channel
        from hostcore.secrets.output import copy_after, redirect_output
        from hostcore.worker.line import SupervisorLine, end_with_all

        faulthandler.enable()  # a segmentation fault, or the supervisor's SIGABRT, leaves a traceback in the output

        if len(sys.argv) not in (3, 6) or not all(number.isdecimal() for number in sys.argv[2:]):
            print("usage: python -m hostcore.worker CONTRACT FD (started by `hostcore run JOB`)", file=sys.stderr)
            return 2
        path, descriptor, *output = Path(sys.argv[1]), *map(int, sys.argv[2:])
        copying = copy_after(*output) if output else None
        line = SupervisorLine(Channel(socket.socket(fileno=descriptor)), stop, when_gone=end_with_all)

        gc.disable()
        from hostcore.worker.startup import needs_training, only_check

        if will_train := needs_training(path):
            from hostcore.worker.attempt import run_attempt  # and torch

        gc.freeze()
        gc.enable()
        code = run_attempt(path, line, stop) if will_train else only_check(path, line)
        if line.was_left_alone:
            if copying is not None:
                redirect_output(os.open(os.devnull, os.O_WRONLY))
                copying.join(1.0)
            end_session()  # the supervisor is gone, and cannot end the processes that plugins have started
        return code


if __name__ == "__main__":
    raise SystemExit(main())
