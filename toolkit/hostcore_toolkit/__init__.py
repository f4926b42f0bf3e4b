"""Optional help for trainer authors. Everything here can also be written by hand; nothing in the host depends on it.

Door:

    to_tensors, to_float_scalar                  Arrow batch -> tensors; tensor -> number
    to_device, seed_everything                   tensors on a device; seeds of all generators
    build_default_adamw_bundle, schedule         AdamW with its groups; learning rate by step
    dataset_items                                batch of numbers -> items of a torch Dataset
    parallelize, average_gradients               a module on several ranks
    before_updates                               the moment when the gradients of a step are there
    training_state, load_training_state          state of model and optimizer for ``state_dict``
    save_trainable_module_checkpoint, load_trainable_module_checkpoint   files of a module's trained parameters
"""

from hostcore_toolkit.devices import seed_everything, to_device
from hostcore_toolkit.items import dataset_items
from hostcore_toolkit.module_checkpoint import save_trainable_module_checkpoint
from hostcore_toolkit.module_loading import LoadedModule, load_trainable_module_checkpoint
from hostcore_toolkit.module_names import ModuleCheckpointError
from hostcore_toolkit.optimizers import OptimizerBundle, build_default_adamw_bundle
from hostcore_toolkit.parallel import CannotParallelize, average_gradients, parallelize
from hostcore_toolkit.schedules import schedule
from hostcore_toolkit.tensors import to_float_scalar, to_tensors
from hostcore_toolkit.training_state import InvalidTrainingState, load_training_state, training_state
from hostcore_toolkit.updates import before_updates

__all__ = [
    "CannotParallelize",
    "InvalidTrainingState",
    "LoadedModule",
    "ModuleCheckpointError",
    "OptimizerBundle",
    "average_gradients",
    "before_updates",
    "build_default_adamw_bundle",
    "dataset_items",
    "load_trainable_module_checkpoint",
    "load_training_state",
    "parallelize",
    "save_trainable_module_checkpoint",
    "schedule",
    "seed_everything",
    "to_device",
    "to_float_scalar",
    "to_tensors",
    "training_state",
]
