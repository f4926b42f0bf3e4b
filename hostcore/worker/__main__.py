"""The worker's entry: ``python -m hostcore.worker CONTRACT FD``, started by the supervisor in a session of its own.

The signal handlers come before every other import, so that a signal during the seconds in which torch is imported is
noted as well; and so does the line to the supervisor, whose end is the supervisor's.
"""

from hostcore.worker.stop import StopSwitch, noted_by


def main() -> int:
    """Run a worker over the inherited socket FD."""
    stop = StopSwitch()
    with noted_by(stop):
        import faulthandler
        import socket
        import sys
        from pathlib import Path

        from hostcore.interruption import end_session
        from hostcore.runs.channel import Channel
        from hostcore.worker.line import SupervisorLine, end_with_all

        faulthandler.enable()  # a segmentation fault, or the supervisor's SIGABRT, leaves a traceback in the output

        if len(sys.argv) != 3 or not sys.argv[2].isdecimal():
            print("usage: python -m hostcore.worker CONTRACT FD (started by `hostcore run JOB`)", file=sys.stderr)
            return 2
        _, contract, descriptor = sys.argv
        line = SupervisorLine(Channel(socket.socket(fileno=int(descriptor))), stop, when_gone=end_with_all)

        from hostcore.worker.attempt import run_attempt

        code = run_attempt(Path(contract), line, stop)
        if line.was_left_alone:
            end_session()  # the supervisor is gone, and cannot end the processes that plugins have started
        return code


if __name__ == "__main__":
    raise SystemExit(main())
