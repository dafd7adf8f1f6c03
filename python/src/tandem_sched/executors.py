"""Where the runs of a sweep are executed: threads of this process, or a Ray cluster.

An executor has a few runs under way at a time, and gives those that have ended.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
import threading
from concurrent import futures
from pathlib import Path
from typing import Any, Protocol

from tandem_sched import execute as execution
from tandem_sched.binary import Binary
from tandem_sched.errors import RunFailed, TandemError
from tandem_sched.execute import Order, Process, Raw, execute


class Executor(Protocol):
    """What a sweep needs of one."""

    workers: int
    """Runs that are executed at a time."""
    slots: int
    """Runs that are given to it at a time."""

    def start(self, order: Order) -> object:
        """Start a run; return what stands for it."""

    def ended(self, under_way: set[Any]) -> list[tuple[object, Raw]]:
        """Wait until at least one has ended; return those that have, with what came of them."""

    def close(self) -> None:
        """End what is under way."""


def cores() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


STEP_S = 0.2
"""Time after which a wait for threads looks for an interrupt, in seconds."""


class Local:
    """Threads of this process, each with one process of the binary at a time."""

    def __init__(self, binary: Binary, workers: int | None) -> None:
        # While the next run of a worker is chosen it has another one to start with.
        self.workers = workers or cores()
        self.slots = 2 * self.workers
        self._binary = str(binary.path)
        self._folder = tempfile.TemporaryDirectory(prefix="tandem-")
        self._pool = futures.ThreadPoolExecutor(self.workers, "tandem")
        self._lock = threading.Lock()
        self._processes: set[Process] = set()
        self._closed = False

    def start(self, order: Order) -> futures.Future[Raw]:
        """Start a run when a thread is free."""
        return self._pool.submit(self._run, order)

    def _run(self, order: Order) -> Raw:
        process: Process | None = None

        def started(new: Process) -> None:
            nonlocal process
            process = new
            with self._lock:
                self._processes.add(new)
                if self._closed:
                    new.kill()

        try:
            return execute(self._binary, order, Path(self._folder.name), started)
        finally:
            with self._lock:
                self._processes.discard(process)

    def ended(self, under_way: set[futures.Future[Raw]]) -> list[tuple[object, Raw]]:
        """Wait for threads, in steps: an interrupt may be delivered to one of them."""
        done: set[futures.Future[Raw]] = set()
        while not done:
            done, _ = futures.wait(under_way, STEP_S, futures.FIRST_COMPLETED)
        return [(run, run.result()) for run in done]

    def close(self) -> None:
        """Kill the processes, and wait for the threads."""
        with self._lock:
            self._closed = True
            for process in self._processes:
                process.kill()
        self._pool.shutdown(cancel_futures=True)
        self._folder.cleanup()


class Ray:
    """A Ray cluster: the one that this process is connected to, else one that is found or started.

    The binary's bytes go to each node once, so that all nodes run the same one. A node needs Ray
    and a CPU of the binary's kind; neither this package nor the binary.
    """

    def __init__(self, binary: Binary, workers: int | None) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as e:
            raise TandemError(
                "executor 'ray': cannot be used: Ray is not installed; "
                "install it by 'pip install tandem-sched[ray]'"
            ) from e
        ray = self._ray
        if not ray.is_initialized():
            ray.init(log_to_driver=False)
        ray.cloudpickle.register_pickle_by_value(execution)
        cpus = int(ray.cluster_resources().get("CPU", 1))
        self.workers = workers or cpus
        self.slots = workers or 2 * cpus
        self._bytes = ray.put(binary.path.read_bytes())
        self._digest = binary.digest
        self._run = ray.remote(num_cpus=1, max_retries=3)(execution.execute_shipped)

    def start(self, order: Order) -> Any:
        """Give a run to the cluster."""
        return self._run.remote(self._bytes, self._digest, order)

    def ended(self, under_way: set[Any]) -> list[tuple[object, Raw]]:
        """Wait for the cluster."""
        done, _ = self._ray.wait(list(under_way), num_returns=1)
        rest = [run for run in under_way if run not in done]
        if rest:
            done += self._ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        try:
            return [(run, Raw(*raw)) for run, raw in zip(done, self._ray.get(done), strict=True)]
        except self._ray.exceptions.RayError as e:
            raise RunFailed(f"Ray: a run cannot be executed: {e}") from e

    def close(self) -> None:
        """Leave the cluster to its owner; what is under way ends by itself."""
        with contextlib.suppress(AttributeError):
            self._ray.cloudpickle.unregister_pickle_by_value(execution)


def executor_of(name: str, binary: Binary, workers: int | None) -> Executor:
    """Return the executor of this name."""
    if workers is not None and workers < 1:
        raise TandemError(f"workers: cannot use {workers}: allowed 1 or more, or None for all")
    if name == "local":
        return Local(binary, workers)
    if name == "ray":
        return Ray(binary, workers)
    raise TandemError(f"executor: cannot use {name!r}: allowed 'local', 'ray'")
