"""The contract between hostcore and its plugins.

Plugin authors import from here and need nothing else: ``from hostcore_hookspecs import StepContext, StepResult``.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hostcore_hookspecs.api_version import API_VERSION, TRAINER_API_VERSION
    from hostcore_hookspecs.context import StepContext
    from hostcore_hookspecs.data_source import DataContext, Dataset, DatasetPart, Mixture, MixtureStage, Shard
    from hostcore_hookspecs.errors import FatalError, HostcoreError, InvalidData, InvalidSettings, TransientError
    from hostcore_hookspecs.events import Event
    from hostcore_hookspecs.job import Job, PluginUse, Resources
    from hostcore_hookspecs.kinds import KINDS, Kind
    from hostcore_hookspecs.launcher import LaunchContext, LaunchHandle, LaunchPlan, LaunchStatus, LogChunk
    from hostcore_hookspecs.markers import hookimpl, not_a_hook, when_recorded
    from hostcore_hookspecs.plan import Plan, PluginRef
    from hostcore_hookspecs.policy import Denial, PolicyContext, Principal
    from hostcore_hookspecs.reporter import ReporterContext
    from hostcore_hookspecs.resolver import ResolveContext
    from hostcore_hookspecs.run_state import (
        Best,
        Checkpoint,
        GeneratedSample,
        MetricPoint,
        RunState,
        SampleRequest,
        StopRequest,
    )
    from hostcore_hookspecs.setting_types import ImportPath, Place, Secret, Uri
    from hostcore_hookspecs.step import Capabilities, KeepsStep, StepControl, StepResult, TensorFile
    from hostcore_hookspecs.trainer import Trainer
    from hostcore_hookspecs.uploader import Artifact, UploadContext, UploadReceipt

_MODULES = {
    "api_version": ("API_VERSION", "TRAINER_API_VERSION"),
    "context": ("StepContext",),
    "data_source": ("DataContext", "Dataset", "DatasetPart", "Mixture", "MixtureStage", "Shard"),
    "errors": ("FatalError", "HostcoreError", "InvalidData", "InvalidSettings", "TransientError"),
    "events": ("Event",),
    "job": ("Job", "PluginUse", "Resources"),
    "kinds": ("KINDS", "Kind"),
    "launcher": ("LaunchContext", "LaunchHandle", "LaunchPlan", "LaunchStatus", "LogChunk"),
    "markers": ("hookimpl", "not_a_hook", "when_recorded"),
    "plan": ("Plan", "PluginRef"),
    "policy": ("Denial", "PolicyContext", "Principal"),
    "reporter": ("ReporterContext",),
    "resolver": ("ResolveContext",),
    "run_state": ("Best", "Checkpoint", "GeneratedSample", "MetricPoint", "RunState", "SampleRequest", "StopRequest"),
    "step": ("Capabilities", "KeepsStep", "StepControl", "StepResult", "TensorFile"),
    "trainer": ("Trainer",),
    "setting_types": ("ImportPath", "Place", "Secret", "Uri"),
    "uploader": ("Artifact", "UploadContext", "UploadReceipt"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "API_VERSION",
    "KINDS",
    "TRAINER_API_VERSION",
    "Artifact",
    "Best",
    "Capabilities",
    "Checkpoint",
    "DataContext",
    "Dataset",
    "DatasetPart",
    "Denial",
    "Event",
    "FatalError",
    "GeneratedSample",
    "HostcoreError",
    "ImportPath",
    "InvalidData",
    "InvalidSettings",
    "Job",
    "KeepsStep",
    "Kind",
    "LaunchContext",
    "LaunchHandle",
    "LaunchPlan",
    "LaunchStatus",
    "LogChunk",
    "MetricPoint",
    "Mixture",
    "MixtureStage",
    "Place",
    "Plan",
    "PluginRef",
    "PluginUse",
    "PolicyContext",
    "Principal",
    "ReporterContext",
    "ResolveContext",
    "Resources",
    "RunState",
    "SampleRequest",
    "Secret",
    "Shard",
    "StepContext",
    "StepControl",
    "StepResult",
    "StopRequest",
    "TensorFile",
    "Trainer",
    "TransientError",
    "UploadContext",
    "UploadReceipt",
    "Uri",
    "hookimpl",
    "not_a_hook",
    "when_recorded",
]

if not TYPE_CHECKING:  # a type checker would take every name for a public one

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used: one name should not cost the import of all."""
        if name not in _MODULE_OF:
            return importlib.import_module(f"{__name__}.deprecated").public_name(name)
        value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value
