"""The environment variables that a job from others may set: those whose names the operator allows, and never these."""

import re
from fnmatch import fnmatchcase
from typing import Any, Final

#: What decides what the processes of a run are, load or trust; the operator's patterns cannot open it.
RESERVED: Final = (
    # Which code runs.
    *("LD_*", "DYLD_*", "GLIBC_*", "GCONV_PATH", "MALLOC_*", "PATH", "PYTHON*", "PIP_*", "UV_*", "CONDA_*"),
    *("VIRTUAL_ENV", "BASH_ENV", "ENV", "IFS", "SHELL*", "HOME", "USER", "LOGNAME", "PERL5*", "NODE_OPTIONS", "GIT_*"),
    *(
        "OPENSSL_*",
        "OMP_TOOL*",
        "HDF5_PLUGIN_*",
        "HSA_*",
        "UCX_MODULE_*",
        "HF_MODULES_CACHE",
        "NUMBA_*",
        "LIBRARY_PATH",
    ),
    *(
        "MPLCONFIGDIR",
        "SRUN_*",
        "SBATCH_*",
        "TORCH_EXTENSIONS_DIR",
        "TORCHINDUCTOR_*",
        "TRITON_*",
        "CC",
        "CXX",
        "NVCC*",
        "CUDA_INJECTION*",
        "NCCL_*PLUGIN*",
    ),
    # Who is who among the processes of a run.
    *("HOSTCORE_*", "TRAINER_*", "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_*", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    *("MASTER_*", "PET_*", "TORCHELASTIC_*", "TORCH_DISTRIBUTED_*", "KUBERNETES_*", "SLURM_*", "RAY_*", "NVIDIA_*"),
    *("CUDA_VISIBLE_DEVICES", "OMPI_*", "PMI*"),
    # Whom they talk to, and whose word they take.
    *("*_PROXY", "SSL_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_ENDPOINT*", "AWS_CA_BUNDLE", "AWS_*_FILE"),
    *("AWS_METADATA_*", "AWS_EC2_METADATA_*", "AWS_CONTAINER_*", "AWS_ROLE_*", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("GCE_METADATA_*", "STORAGE_EMULATOR_HOST", "AZURE_*", "FSSPEC_*", "HF_ENDPOINT", "HOSTALIASES", "RES_OPTIONS"),
    *("LOCALDOMAIN", "KRB5*", "NETRC", "BOTO_*", "CLOUDSDK_*", "AWS_PROFILE", "AWS_CONFIG*", "AWS_DEFAULT_PROFILE"),
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_LONGEST_VALUE: Final = 32 * 1024


def wrong_variable(name: str, value: Any) -> str | None:
    """Return the reason why no job may set a variable under any operator; None: it depends on the operator.

    :param value: Values that are no strings are left to the converter's error.
    """
    if not _NAME.fullmatch(name):
        return "the name of a variable is at most 255 letters, digits and _, and begins with no digit"
    if any(fnmatchcase(name.upper(), pattern) for pattern in RESERVED):
        return f"the variable {name} decides how runs are started; no job may set it"
    if isinstance(value, str) and ("\0" in value or len(value.encode("utf-8", "replace")) > _LONGEST_VALUE):
        return f"the value of a variable has no null character and at most {_LONGEST_VALUE:,} bytes"
    return None
