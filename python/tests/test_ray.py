"""The same sweep on a Ray cluster of two nodes, each a set of processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tandem_sched import Binary, Refused, Scenario, Sweep

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start two nodes of one CPU each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    import ray

    small = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    started = cluster_utils.Cluster(initialize_head=True, head_node_args=small)
    started.add_node(num_cpus=1, object_store_memory=100 << 20)
    ray.init(address=started.address, log_to_driver=False)
    yield started
    ray.shutdown()
    started.shutdown()


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, binary: Binary) -> Path:
    """Give workers a binary that notes its node, and takes long enough to be spread."""
    log = tmp_path / "nodes"
    script = tmp_path / "tandem"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = sim ] && echo "$RAY_RAYLET_PID $PPID" >> {log} && sleep 0.05\n'
        f'exec {binary.path} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("TANDEM", str(script))
    return log


def raylet_of(worker: str) -> str:
    """Return the process that has started a worker: one for each node."""
    status = Path(f"/proc/{worker}/status").read_text()
    return next(line.split()[1] for line in status.splitlines() if line.startswith("PPid"))


def test_a_sweep_on_a_cluster_has_the_results_of_this_machine(
    cluster: Any, nodes: Path, two: Scenario, tmp_path: Path
) -> None:
    assert cluster is not None
    busy = {"kind": "io", "work": "1ms", "sleep": "1ms", "dist": "exponential"}
    sweep = Sweep(two.with_({"light.workload": busy}), seeds=range(40))
    results = sweep.run(executor="ray", progress=False, store=tmp_path / "store")
    assert (results.workers, results.reused) == (2, 0)
    workers = {line.split()[-1] for line in nodes.read_text().splitlines()}
    assert len({raylet_of(worker) for worker in workers}) == 2, "both nodes have worked"
    ran = len(nodes.read_text().splitlines())
    assert ran == 40
    again = sweep.run(progress=False, store=tmp_path / "store")
    assert again.reused == 40, "a store goes from a cluster to one machine"
    here = sweep.run(progress=False)
    assert results.frame().equals(here.frame())


def test_a_refusal_on_a_cluster_is_that_of_this_machine(
    cluster: Any, two: Scenario, tmp_path: Path
) -> None:
    assert cluster is not None
    sweep = Sweep(two, seeds=range(6), knobs={"quantum_us": [50000, 1]})
    with pytest.raises(Refused, match="quantum_us") as refused:
        sweep.run(executor="ray", progress=False, store=tmp_path / "store")
    assert refused.value.exit_code == 3
