"""The result document as typed objects, field by field as docs/result.md describes it.

``tests/test_schema.py`` compares these classes with the schema of the binary. All times are whole
nanoseconds. Fields of a later minor version are left out.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

RESULT_VERSION = "1.3"
"""Version of the result document that these classes describe."""

Count = Annotated[int, Field(ge=0)]
"""A number or a time that is never negative."""


class Part(BaseModel):
    """A part of a result document; it does not change."""

    model_config = ConfigDict(frozen=True)


class Moved(Part):
    """Migrations by what the two pCPUs share, each counted once."""

    twin: Count
    core: Count
    llc: Count
    node: Count


class Lost(Part):
    """Time in RUN that was no work, by cause."""

    smt_ns: Count
    refill_ns: Count
    bandwidth_ns: Count
    remote_ns: Count = 0
    switch_ns: Count
    guest_ns: Count


class Times(Part):
    """State times and counts of a world, or their sums over the worlds of a VM."""

    used_ns: Count
    run_ns: Count
    ready_ns: Count
    costop_ns: Count
    limited_ns: Count
    wait_ns: Count
    idle_ns: Count
    entitled_ns: Count
    migrations: Count
    work: Count
    lost: Lost | None = None
    moved: Moved | None = None

    @property
    def slowdown(self) -> float | None:
        """Time that it wanted to run over its work: 1 on a whole core alone. None without work."""
        return (self.run_ns + self.ready_ns + self.costop_ns) / self.work if self.work else None


class World(Times):
    """A vCPU, another thread of a VM, or a host task."""

    name: str
    kind: Literal["vcpu", "helper", "task"]


class CpuStat(Part):
    """CPU time and waits by the kernel's accounts and by the document's."""

    kernel_ns: Count
    used_ns: Count
    kernel_delay_ns: Count = 0
    delay_ns: Count = 0
    waits: Count = 0


class GuestTasks(Part):
    """What a guest's own scheduler did with its tasks."""

    migrations: Count
    exec_migrations: Count
    pulls: Count
    interrupts: Count


class Guest(Part):
    """What an SMP guest made of its CPU time."""

    spin_ns: Count
    rounds: Count
    lockups: Count
    longest_wait_ns: Count
    tasks: GuestTasks | None = None


class NumaClient(Part):
    """A VM, or a part of a wide one, that has a home node."""

    vcpus: Count
    home: Count | None
    llcs: list[Count] = []
    bytes: list[Count]
    changes: dict[str, Count]
    moved_bytes: Count
    decisions: list[str]
    notes: list[str] = []
    talks: dict[str, Count] = {}

    @property
    def migrations(self) -> int:
        """How often its home has changed: esxtop's NMIG."""
        return sum(count for reason, count in self.changes.items() if reason != "placed")

    @property
    def local_percent(self) -> float | None:
        """Part of its memory in its home: esxtop's N%L. None without a home."""
        if self.home is None:
            return None
        total = sum(self.bytes)
        return self.bytes[self.home] * 100 / total if total else 100.0


class Vm(Times):
    """A VM; its times are the sums over its worlds."""

    name: str
    pool: str
    vcpus: Count
    shares: Count
    cpu_stat: CpuStat | None = None
    guest: Guest | None = None
    worlds: list[World]
    numa: list[NumaClient] = []


class Pool(Part):
    """A resource pool: sums over everything inside."""

    path: str
    used_ns: Count
    entitled_ns: Count
    ready_ns: Count
    costop_ns: Count
    limited_ns: Count
    peak_ns: Count | None = None


class Pcpu(Part):
    """A pCPU, and the time that it ran worlds."""

    id: Count
    busy_ns: Count


class HostCounts(Part):
    """The size of the host."""

    pcpus: Count
    cores: Count
    llcs: Count
    nodes: Count
    sockets: Count


class Wakeups(Part):
    """How late the vCPUs of a VM, or a host task, ran after they should have woken."""

    vm: str
    by: Literal["workload", "scheduler"]
    count: Count
    min_ns: Count
    mean_ns: Count
    p99_ns: Count
    max_ns: Count


class Checked(Part):
    """What the oracle found."""

    violated: Count
    violations: list[str]
    ready_max_ns: Count
    idle_while_waiting_max_ns: Count
    skew_max_ns: Count
    costop_max_ns: Count
    realtime_ns: list[Count] = []


class RunResult(Part):
    """The result of one run of a scenario."""

    label: str
    duration_ns: Count
    host: HostCounts
    pcpus: list[Pcpu]
    pools: list[Pool]
    vms: list[Vm]
    wakeups: list[Wakeups] = []
    checked: Checked | None = None

    def vm(self, name: str) -> Vm:
        """Return the VM of this name."""
        for vm in self.vms:
            if vm.name == name:
                return vm
        raise KeyError(f"VM '{name}': seen none, allowed {', '.join(v.name for v in self.vms)}")


class Document(Part):
    """A result document."""

    scenario: str
    where: Literal["sim", "lab", "live"]
    policy: str
    seed: Count
    command: str | None = None
    runs: list[RunResult]
