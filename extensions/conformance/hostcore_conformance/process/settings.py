"""Settings of the whole process, put back after a plugin has had its way with them."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: The environment variable with the number of torch's threads.
THREADS: Final = "OMP_NUM_THREADS"


@contextmanager
def process_kept() -> Iterator[None]:
    """Leave the process as it was, whatever the trainer has done to it: a broken one must not break other checks.

    Torch computes in one thread, unless the environment has another number: examples are small, and threads that wait
    for each other on a busy machine take several times the processor time.
    """
    import torch

    from hostcore.worker import randomness

    dtype, grad, threads = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()
    device, anomaly = torch.get_default_device(), torch.is_anomaly_enabled()
    exact = torch.are_deterministic_algorithms_enabled()
    handlers = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    if THREADS not in os.environ and threads != 1:
        torch.set_num_threads(1)
    try:
        with randomness.kept():
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        if torch.get_default_device() != device:
            torch.set_default_device(None)
        torch.autograd.set_detect_anomaly(anomaly)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if exact != torch.are_deterministic_algorithms_enabled():
            torch.use_deterministic_algorithms(exact)
        for one, handler in handlers.items():
            if signal.getsignal(one) is not handler:
                signal.signal(one, handler)
