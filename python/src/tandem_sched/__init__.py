"""Scenarios, runs and sweeps of Tandem's simulated host: docs/python.md."""

from tandem_sched.binary import Binary, Knob, knobs
from tandem_sched.errors import (
    BinaryNotFound,
    CheckFailed,
    Refused,
    RunFailed,
    StoreError,
    TandemError,
)
from tandem_sched.models import RESULT_VERSION, Document, RunResult
from tandem_sched.point import Point
from tandem_sched.result import Result, run
from tandem_sched.scenario import Scenario
from tandem_sched.sweep import Results, Sweep
from tandem_sched.tables import (
    Change,
    Expect,
    Hardware,
    Host,
    HostTask,
    Numa,
    Offline,
    Pool,
    Profile,
    Realtime,
    Vm,
    Workload,
)

__version__ = "0.1.0"

__all__ = [
    "RESULT_VERSION",
    "Binary",
    "BinaryNotFound",
    "Change",
    "CheckFailed",
    "Document",
    "Expect",
    "Hardware",
    "Host",
    "HostTask",
    "Knob",
    "Numa",
    "Offline",
    "Point",
    "Pool",
    "Profile",
    "Realtime",
    "Refused",
    "Result",
    "Results",
    "RunFailed",
    "RunResult",
    "Scenario",
    "StoreError",
    "Sweep",
    "TandemError",
    "Vm",
    "Workload",
    "knobs",
    "run",
]
