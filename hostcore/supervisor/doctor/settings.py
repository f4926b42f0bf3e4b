"""Environment variables that change what jobs do."""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Final

from hostcore.runs.directory import RUNS_DIR_VARIABLE
from hostcore.supervisor.device_leases import DEVICES_DIR_VARIABLE
from hostcore.supervisor.doctor.finding import Finding
from hostcore.supervisor.ranks.engine import (
    ADMISSION_VARIABLE,
    MASTER_SOCKET_VARIABLE,
    START_VARIABLE,
    SUPERVISOR_VARIABLE,
    Engine,
    InvalidRanks,
)

#: Those that hostcore reads or sets.
OWN: Final = frozenset(
    {
        "HOSTCORE_CACHE_DIR",
        "HOSTCORE_CONFIG",
        "HOSTCORE_DATABASE_URL",
        ADMISSION_VARIABLE,
        DEVICES_DIR_VARIABLE,
        "HOSTCORE_SERVER",
        RUNS_DIR_VARIABLE,
        MASTER_SOCKET_VARIABLE,
        START_VARIABLE,
        SUPERVISOR_VARIABLE,
    }
)
_OWN_PREFIX: Final = "HOSTCORE_"
#: torchrun sets it for its ranks, beside what other engines set.
_ELASTIC: Final = "TORCHELASTIC_RUN_ID"
_TELLING: Final = frozenset(
    {
        "CUBLAS_WORKSPACE_CONFIG",
        "CUDA_DEVICE_ORDER",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "LD_PRELOAD",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "MKL_NUM_THREADS",
        "NVIDIA_TF32_OVERRIDE",
        "OMP_NUM_THREADS",
        "PYTHONHOME",
        "PYTHONOPTIMIZE",
        "PYTHONPATH",
        "RANK",
        "ROCR_VISIBLE_DEVICES",
        "WORLD_SIZE",
    }
)
_TELLING_PREFIXES: Final = (_OWN_PREFIX, "GLOO_", "NCCL_", "PYTORCH_", "TORCH_")
_SECRET: Final = re.compile("TOKEN|SECRET|PASSWORD|CREDENTIAL|_KEY")


def settings_finding(environment: Mapping[str, str]) -> Finding:
    """What is set, and what of it is likely to be a mistake."""
    told = {
        name: "***" if _SECRET.search(name) else value
        for name, value in sorted(environment.items())
        if name in _TELLING or name.startswith(_TELLING_PREFIXES)
    }
    try:
        mistakes = _mistakes(environment)
    except InvalidRanks as error:
        return Finding(
            name="environment",
            status="failed",
            finding=error.message,
            hint=error.hint,
            details={"variables": told},
        )
    listed = ", ".join(f"{name}={value}" for name, value in told.items())
    return Finding(
        name="environment",
        status="warning" if mistakes else "ok",
        finding="; ".join(message for message, _ in mistakes) or listed or "nothing is set that changes what jobs do",
        hint="; ".join(hint for _, hint in mistakes) or None,
        details={"variables": told},
    )


def _mistakes(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """What is likely to be wrong, and what to do; in words.

    :raises InvalidRanks: What every run would refuse.
    """
    found = []
    engine = Engine.of(environment)
    if engine and _ELASTIC not in environment:
        message = f"RANK and WORLD_SIZE are set: a run here takes itself for rank {engine.rank} of {engine.world_size}"
        found.append((message, "unset RANK WORLD_SIZE, unless an engine has set them"))
    if environment.get("CUDA_LAUNCH_BLOCKING") == "1":
        found.append(("CUDA_LAUNCH_BLOCKING=1 makes every GPU slow", "unset CUDA_LAUNCH_BLOCKING"))
    threads = environment.get("OMP_NUM_THREADS")
    if threads is not None and not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", threads):
        found.append((f"OMP_NUM_THREADS={threads!r} is not a number of threads", "set OMP_NUM_THREADS to one"))
    for name, near in unknown_variables(environment):
        hint = f"did you mean {near}?" if near else f"hostcore reads {', '.join(sorted(OWN))}"
        found.append((f"hostcore does not know {name}", hint))
    return found


def unknown_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The variables that look like hostcore's own and are not; each with the one that may be meant, or nothing."""
    for name in sorted(environment):
        if name.startswith(_OWN_PREFIX) and name not in OWN:
            # Without what all of them have in common, which would make any two alike.
            known = [own.removeprefix(_OWN_PREFIX) for own in OWN]
            near = difflib.get_close_matches(name.removeprefix(_OWN_PREFIX), known, n=1, cutoff=0.75)
            yield name, f"{_OWN_PREFIX}{near[0]}" if near else ""
