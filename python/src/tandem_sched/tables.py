"""The tables of a scenario file as types: keys as docs/scenarios.md lists them, no defaults.

Each is a ``TypedDict``: ``Vm(name="a", vcpus=2)`` is a plain dict, and a type checker knows its
keys. What the values may be is judged by the binary alone. ``tests/test_tables.py`` compares the
keys with those that the binary accepts.

Times are text such as ``"50ms"``, sizes ``"8MiB"``, amounts of CPU ``"150%"`` or ``"2.4GHz"``, sets
of pCPUs ``"0-3,8"``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Required, TypedDict

Shares = int | Literal["low", "normal", "high"]


class Workload(TypedDict, total=False):
    """What a vCPU or a host task does."""

    kind: Required[
        Literal[
            "burn",
            "idle",
            "duty",
            "periodic",
            "io",
            "exits",
            "spinlock",
            "barrier",
            "ipi",
            "pipe",
        ]
    ]
    work: str
    sleep: str
    period: str
    dist: Literal["fixed", "exponential"]
    halts: bool
    emulate: str
    think: str
    hold: str
    ticket: bool
    spin: str
    handle: str
    ring: int


class Host(TypedDict, total=False):
    """``[host]``."""

    sockets: int
    nodes_per_socket: int
    llcs_per_node: int
    cores_per_llc: Required[int]
    threads_per_core: int
    hz: int
    timer_late: str
    pause_exits: bool
    wake_path: list[str]
    idle_exit: list[str]
    idle_residency: str
    mhz: int


class Guest(TypedDict, total=False):
    """``[vm.guest]``."""

    hidden: bool
    threads_per_core: int
    vcpus_per_llc: int
    exec_balance: bool
    exec_counts_itself: bool
    wake_wide: bool
    steal: bool
    tick: str
    send: str
    wake: str


class GuestWork(TypedDict, total=False):
    """What a task of a guest does."""

    kind: Required[Literal["burn", "io", "exec", "pipe"]]
    work: str
    sleep: str
    interrupts: int
    dist: Literal["fixed", "exponential"]


class GuestTask(TypedDict, total=False):
    """``[[vm.task]]``."""

    name: Required[str]
    count: int
    does: Required[GuestWork]
    working_set: str


class Vm(TypedDict, total=False):
    """``[[vm]]``."""

    name: Required[str]
    count: int
    vcpus: Required[int]
    shares: Shares
    pool: str
    reservation: str
    limit: str
    burst: str
    affinity: str
    cpuset: str
    vcpu_affinity: list[str]
    workload: Workload
    profile: str
    memory: str
    vnuma: bool
    vnuma_node: int
    prefer_ht: bool
    llc: Literal["consolidate", "spread"]
    vcpu_workloads: list[Workload]
    watchdog: str
    active: list[str]
    start: str
    stop: str
    hot_add: list[str]
    guest: Guest
    task: list[GuestTask]


class Pool(TypedDict, total=False):
    """``[[pool]]``."""

    name: Required[str]
    parent: str
    shares: Shares
    reservation: str
    limit: str
    burst: str
    expandable: bool
    scalable: bool


class HostTask(TypedDict, total=False):
    """``[[host_task]]``."""

    name: Required[str]
    count: int
    affinity: str
    per_cpu_kthread: bool
    nice: int
    profile: str
    workload: Workload


class Change(TypedDict, total=False):
    """``[[change]]``."""

    at: Required[str]
    vm: str
    pool: str
    shares: Shares
    reservation: str
    limit: str
    burst: str


Offline = TypedDict(
    "Offline", {"pcpus": Required[str], "from": Required[str], "to": str}, total=False
)
"""``[[offline]]``; ``from`` is a word of Python: ``{"pcpus": "4-7", "from": "2s"}``."""

Realtime = TypedDict(
    "Realtime",
    {
        "name": Required[str],
        "pcpus": Required[str],
        "work": Required[str],
        "period": Required[str],
        "dist": Literal["fixed", "exponential"],
        "from": str,
        "to": str,
    },
    total=False,
)
"""``[[realtime]]``; written as ``{"name": …}``, as ``Offline`` is."""


class Hardware(TypedDict, total=False):
    """``[hardware]``."""

    on: bool
    private_cache: str
    llc: str
    from_llc: str
    from_memory: str
    from_node: str
    migration: str
    bandwidth: str


class Profile(TypedDict, total=False):
    """``[[profile]]``."""

    name: Required[str]
    about: str
    source: str
    smt_yield: float
    working_set: str
    uncached: float
    bandwidth: str
    uncached_bandwidth: str
    memory_bound: float
    hot_memory: float
    hot_accesses: float
    shared_accesses: float
    workload: Workload


class Numa(TypedDict, total=False):
    """``[numa]``."""

    on: bool
    memory: list[str]
    bandwidth: list[str]
    distances: list[list[int]]
    link: str
    period: str
    imbalance_percent: int
    improvement_percent: int
    thrash_percent: int
    fairness_periods: int
    unfair_percent: int
    action_affinity: int
    locality_weight: int
    core_cap_percent: int
    swap_periods: int
    roam_percent: int
    memory_rate: str


class Expect(TypedDict, total=False):
    """``[expect]``; the simulator judges those that do not begin with ``lab``."""

    sim_permille: int
    lab_permille: int
    ratio_of: list[str]
    ratio_permille: int
    lab_ratio_permille: int
    equal_of: list[str]
    equal_permille: int
    lab_equal_permille: int
    at_least: Mapping[str, int]
    lab_at_least: Mapping[str, int]
    limit_permille: int
    lab_limit_permille: int
    refill_permille: int
    late_mean_us: Mapping[str, int]
    late_max_us: Mapping[str, int]
    lab_late_mean_us: Mapping[str, int]
    lab_late_max_us: Mapping[str, int]


class Lab(TypedDict, total=False):
    """``[lab]``."""

    duration: str
    runs: list[str]
    exact_clock: bool
    trace: bool
    skip: str


class Run(TypedDict, total=False):
    """``[[run]]``."""

    label: Required[str]
    set: Mapping[str, object]


class Tables(TypedDict, total=False):
    """A whole scenario file."""

    title: str
    source: str
    seed: int
    duration: str
    warmup: str
    host: Required[Host]
    pool: list[Pool]
    vm: list[Vm]
    host_task: list[HostTask]
    change: list[Change]
    offline: list[Offline]
    realtime: list[Realtime]
    hardware: Hardware
    profile: list[Profile]
    numa: Numa
    knobs: Mapping[str, int | str]
    expect: Expect
    lab: Lab
    run: list[Run]
