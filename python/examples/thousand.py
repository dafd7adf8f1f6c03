"""A sweep of 1,000 runs: how late an interactive VM wakes, by the scheduler and the load beside it.

Kill it at any time, and start it again: it goes on with the results that are there.

    python examples/thousand.py                # 5 schedulers x 4 loads x 50 seeds, on all cores
    python examples/thousand.py --ray          # the same on a Ray cluster
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars

from tandem_sched import Host, Scenario, Sweep, Vm, figures

POLICIES = ["tandem", "vtime", "fifo", "esx-2.5.3", "esx-5.1"]
BURNERS = [1, 2, 4, 8]

scenario = Scenario.of(
    "beside-burners",
    duration="5s",
    warmup="1s",
    host=Host(cores_per_llc=4),
    vm=[
        Vm(
            name="web",
            vcpus=2,
            workload={"kind": "io", "work": "300us", "sleep": "3ms", "dist": "exponential"},
        ),
        Vm(name="batch", count=1, vcpus=2),
    ],
)


def sweep(seeds: int) -> Sweep:
    """Return the sweep with so many seeds; 50 make 1,000 runs."""
    return Sweep(
        scenario,
        seeds=range(1, seeds + 1),
        policies=POLICIES,
        settings={"batch.count": BURNERS},
    )


def table(latencies: polars.DataFrame) -> polars.DataFrame:
    """Return the mean latency of web's wake-ups in us, a row a load, a column a scheduler."""
    return (
        latencies.filter(vm="web", by="workload")
        .with_columns(us=polars.col("mean_ns") / 1000)
        .pivot("policy", index="batch.count", values="us", aggregate_function="mean")
    )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--seeds", type=int, default=50)
    words.add_argument("--store", type=Path, default=Path("thousand.jsonl"))
    words.add_argument("--ray", action="store_true")
    given = words.parse_args()
    results = sweep(given.seeds).run(store=given.store, executor="ray" if given.ray else "local")
    print(f"{len(results)} runs, {results.reused} of them before, {results.wall_s:.1f} s")
    latencies = results.frame(of="wakeups")
    with polars.Config(tbl_hide_dataframe_shape=True, float_precision=1):
        print(table(latencies))
    axes = figures.against(
        latencies.filter(vm="web", by="workload"), "batch.count", "mean_ns", by="policy"
    )
    axes.set_yscale("log")
    picture = given.store.with_suffix(".png")
    if figure := axes.get_figure(root=True):
        figure.savefig(picture)
    print(f"figure: {picture}")


if __name__ == "__main__":
    main()
