"""The worker's entry: ``python -m hostcore.worker CONTRACT FD``, started by the supervisor.

The signal handlers come before every other import, so that a signal during the seconds in which torch is imported is
noted as well.
"""

from hostcore.worker.stop import StopSwitch


def main() -> int:
    """Run a worker over the inherited socket FD."""
    stop = StopSwitch()
    with stop.signals():
        import faulthandler
        import socket
        import sys
        from pathlib import Path

        from hostcore.runs.channel import Channel

        faulthandler.enable()  # a segmentation fault leaves a traceback in the worker's output

        if len(sys.argv) != 3 or not sys.argv[2].isdecimal():
            print("usage: python -m hostcore.worker CONTRACT FD (started by `hostcore run JOB`)", file=sys.stderr)
            return 2
        _, contract, descriptor = sys.argv
        channel = Channel(socket.socket(fileno=int(descriptor)))

        from hostcore.worker.attempt import run_attempt

        return run_attempt(Path(contract), channel, stop)


if __name__ == "__main__":
    raise SystemExit(main())
