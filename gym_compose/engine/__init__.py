"""Running a deployment: ``select_engine`` gives an ``Engine``, Docker Compose or processes of this host."""

from gym_compose.engine.interface import (
    BuiltImage,
    Engine,
    EngineEvent,
    LogLine,
    Observed,
    PlannedAction,
    ServiceState,
    StopReport,
)
from gym_compose.engine.select import CHOICES, select_engine

__all__ = [
    "CHOICES",
    "BuiltImage",
    "Engine",
    "EngineEvent",
    "LogLine",
    "Observed",
    "PlannedAction",
    "ServiceState",
    "StopReport",
    "select_engine",
]
