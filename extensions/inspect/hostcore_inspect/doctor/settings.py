"""Environment variables that change what jobs do."""

import re
from collections.abc import Mapping
from typing import Final

from hostcore.plugins.installed import discover
from hostcore.supervisor.engine import Engine, InvalidRanks
from hostcore.supervisor.engine_ranks import installed_engine_ranks
from hostcore.supervisor.quick_checks import OWN, OWN_PREFIX, unknown_variables
from hostcore_hookspecs.errors import HostcoreError
from hostcore_inspect.doctor.finding import DoctorFinding

#: Set by torchrun for its ranks, beside the variables of other engines.
_ELASTIC: Final = "TORCHELASTIC_RUN_ID"
_SHOWN: Final = frozenset(
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
_SHOWN_PREFIXES: Final = (OWN_PREFIX, "GLOO_", "NCCL_", "PYTORCH_", "TORCH_")
_SECRET: Final = re.compile("TOKEN|SECRET|PASSWORD|CREDENTIAL|_KEY")


def settings_finding(environment: Mapping[str, str]) -> DoctorFinding:
    """Check the variables that are set for likely mistakes."""
    shown = {
        name: "***" if _SECRET.search(name) else value
        for name, value in sorted(environment.items())
        if name in _SHOWN or name.startswith(_SHOWN_PREFIXES)
    }
    try:
        mistakes = _mistakes(environment)
    except InvalidRanks as error:
        return DoctorFinding(
            name="environment",
            status="failed",
            finding=error.message,
            hint=error.hint,
            details={"variables": shown},
        )
    listed = ", ".join(f"{name}={value}" for name, value in shown.items())
    return DoctorFinding(
        name="environment",
        status="warning" if mistakes else "ok",
        finding="; ".join(message for message, _ in mistakes) or listed or "nothing is set that changes what jobs do",
        hint="; ".join(hint for _, hint in mistakes) or None,
        details={"variables": shown},
    )


def _mistakes(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return likely mistakes, each with its remedy.

    :raises InvalidRanks: When every run would refuse them.
    """
    found = []
    engine = Engine.of(environment)
    if engine and _ELASTIC not in environment:
        message = f"RANK and WORLD_SIZE are set: a run here takes itself for rank {engine.rank} of {engine.world_size}"
        found.append((message, "unset RANK WORLD_SIZE, unless an engine has set them"))
    if engine:
        try:
            installed_engine_ranks(discover())
        except HostcoreError as error:
            found.append((error.message, error.hint or ""))
    if environment.get("CUDA_LAUNCH_BLOCKING") == "1":
        found.append(("CUDA_LAUNCH_BLOCKING=1 makes every GPU slow", "unset CUDA_LAUNCH_BLOCKING"))
    threads = environment.get("OMP_NUM_THREADS")
    if threads is not None and not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", threads):
        found.append((f"OMP_NUM_THREADS={threads!r} is not a number of threads", "set OMP_NUM_THREADS to one"))
    for name, near in unknown_variables(environment):
        hint = f"did you mean {near}?" if near else f"hostcore reads {', '.join(sorted(OWN))}"
        found.append((f"hostcore does not know {name}", hint))
    return found
