# %% [markdown]
# # Shares of two wide VMs
#
# A notebook in percent format: Jupyter (with Jupytext) and editors open it as cells. It also runs
# as a script, and CI does so.

# %%
from __future__ import annotations

import polars

from tandem_sched import Host, Scenario, Sweep, Vm, figures, run

# %% [markdown]
# Two wide VMs on eight pCPUs. The object has the keys of a scenario file.

# %%
scenario = Scenario.of(
    "wide",
    duration="5s",
    warmup="500ms",
    host=Host(sockets=2, cores_per_llc=2, threads_per_core=2),
    vm=[Vm(name="batch", vcpus=8, shares=100), Vm(name="build", vcpus=8, shares=300)],
)
result = run(scenario)
build, batch = result.vm("build"), result.vm("batch")
print(f"build has {build.used_ns / batch.used_ns:.2f} times the CPU time of batch")

# %% [markdown]
# The same for other shares, under Tandem and under a scheduler that weighs threads.

# %%
sweep = Sweep(
    scenario,
    seeds=range(1, 4),
    settings={"build.shares": [100, 300, 500, 700]},
    policies=["tandem", "vtime"],
)
frame = sweep.run().frame()

# %%
used = frame.pivot("vm", index=["policy", "seed", "build.shares"], values="used_ns")
ratios = used.with_columns(
    wanted=polars.col("build.shares") / 100,
    ratio=polars.col("build") / polars.col("batch"),
)
print(ratios.group_by("policy", "wanted", maintain_order=True).agg(polars.col("ratio").mean()))

# %%
axes = figures.against(ratios, "wanted", "ratio", by="policy")
axes.figure

# %%
figures.states(
    frame.filter((polars.col("policy") == "tandem") & (polars.col("build.shares") == 300))
)
