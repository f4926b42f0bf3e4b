"""The worker's entry: ``python -m hostcore.worker CONTRACT FD``, started by the supervisor in a session of its own.

The signal handlers come before every other import, so that a signal during the seconds in which torch is imported is
noted as well; and so does the line to the supervisor, whose end is the supervisor's. With ``-`` in place of CONTRACT,
FD is where both are said later (:mod:`hostcore.worker.line`).

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
        from queue import SimpleQueue

        from hostcore.interruption import end_session
        from hostcore.runs.channel import SAID_LATER, Channel
        from hostcore.worker.line import Handover, SupervisorLine, Told, end_with_all

        def connect(descriptor: int) -> SupervisorLine:
            return SupervisorLine(Channel(socket.socket(fileno=descriptor)), stop, when_gone=end_with_all)

        faulthandler.enable()  # a segmentation fault, or the supervisor's SIGABRT, leaves a traceback in the output

        if len(sys.argv) != 3 or not sys.argv[2].isdecimal():
            print("usage: python -m hostcore.worker CONTRACT FD (started by `hostcore run JOB`)", file=sys.stderr)
            return 2
        _, contract, descriptor = sys.argv
        if contract == SAID_LATER:
            told = Handover(socket.socket(fileno=int(descriptor)), connect).told
        else:
            told = SimpleQueue()
            told.put(Told(contract, connect(int(descriptor)), {}))

        gc.disable()
        from hostcore.worker.startup import needs_training, only_check

        if will_train := contract == SAID_LATER or needs_training(Path(contract)):
            from hostcore.worker.attempt import run_attempt  # and torch

        gc.freeze()
        gc.enable()
        contract, line, environment = told.get()
        os.environ.update(environment)
        path = Path(contract)
        code = run_attempt(path, line, stop) if will_train else only_check(path, line)
        if line.was_left_alone:
            end_session()  # the supervisor is gone, and cannot end the processes that plugins have started
        return code


if __name__ == "__main__":
    raise SystemExit(main())
