"""The contract between hostcore and its plugins.

Plugin authors import from here and need nothing else: ``from hostcore_hookspecs import StepContext, StepResult``.
"""

from hostcore_hookspecs.api_version import API_VERSION, TRAINER_API_VERSION
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.data_source import DataContext, Dataset, Shard
from hostcore_hookspecs.errors import FatalError, HostcoreError, InvalidData, InvalidSettings, TransientError
from hostcore_hookspecs.events import Event
from hostcore_hookspecs.job import Job
from hostcore_hookspecs.kinds import KINDS, Kind
from hostcore_hookspecs.launcher import LaunchContext, LaunchHandle, LaunchPlan, LaunchStatus, LogChunk
from hostcore_hookspecs.markers import hookimpl, not_a_hook
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
from hostcore_hookspecs.step import Capabilities, StepControl, StepResult
from hostcore_hookspecs.trainer import Trainer
from hostcore_hookspecs.uploader import Artifact, UploadContext, UploadReceipt

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
    "Denial",
    "Event",
    "FatalError",
    "GeneratedSample",
    "HostcoreError",
    "InvalidData",
    "InvalidSettings",
    "Job",
    "Kind",
    "LaunchContext",
    "LaunchHandle",
    "LaunchPlan",
    "LaunchStatus",
    "LogChunk",
    "MetricPoint",
    "Plan",
    "PluginRef",
    "PolicyContext",
    "Principal",
    "ReporterContext",
    "ResolveContext",
    "RunState",
    "SampleRequest",
    "Shard",
    "StepContext",
    "StepControl",
    "StepResult",
    "StopRequest",
    "Trainer",
    "TransientError",
    "UploadContext",
    "UploadReceipt",
    "hookimpl",
    "not_a_hook",
]
