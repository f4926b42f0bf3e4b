"""Optional help for trainer authors. Everything here can also be written by hand; nothing in the host depends on it."""

from hostcore.toolkit.optimizers import OptimizerBundle, build_default_adamw_bundle
from hostcore.toolkit.scalars import to_float_scalar
from hostcore.toolkit.seeding import seed_everything
from hostcore.toolkit.tensors import to_tensors

__all__ = [
    "OptimizerBundle",
    "build_default_adamw_bundle",
    "seed_everything",
    "to_float_scalar",
    "to_tensors",
]
