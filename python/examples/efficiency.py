"""How much of two or more cores a sweep uses, and what Python costs a run.

    python examples/efficiency.py [--runs 200] [--rounds 3] [--scenario demo]

Parallel efficiency is the time of one worker over the time of N workers, over N; the best round of
each counts, and rounds alternate. The shell is measured beside it: the same runs by ``xargs -P``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tandem_sched import Binary, Document, Scenario, Sweep
from tandem_sched.executors import cores


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--runs", type=int, default=200)
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--scenario", default="demo")
    given = words.parse_args()
    binary, scenario = Binary.find(), Scenario.load(given.scenario)
    sweep = Sweep(scenario, seeds=range(1, given.runs + 1))
    many = cores()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.toml"
        scenario.save(file)

        used: list[float] = []
        own: list[float] = []

        def python(workers: int, round_: int) -> float:
            store = Path(folder) / f"{workers}-{round_}"
            before = time.process_time()
            results = sweep.run(workers=workers, progress=False, store=store)
            own.append((time.process_time() - before) / given.runs)
            if workers == many:
                used.append(results.busy_s / (results.wall_s * workers))
            return results.wall_s

        def shell(workers: int) -> float:
            line = (
                f"seq {given.runs} | xargs -P {workers} -I SEED {binary.path} sim {file} "
                f"--seed SEED --json {folder}/shell-SEED.json >/dev/null 2>&1"
            )
            return seconds(lambda: subprocess.run(line, shell=True, check=True))

        times: dict[str, list[float]] = {}
        for round_ in range(given.rounds):
            for workers in (1, many):
                times.setdefault(f"sweep, {workers}", []).append(python(workers, round_))
                times.setdefault(f"xargs, {workers}", []).append(shell(workers))
        document = (Path(folder) / "shell-1.json").read_bytes()
    best = {name: min(all_) for name, all_ in times.items()}
    print(f"{given.scenario}: {given.runs} runs, {many} cores, best of {given.rounds}")
    for name, took in sorted(best.items()):
        print(f"{name} at a time: {took:.2f} s, {1000 * took / given.runs:.1f} ms a run")
    for name in ("sweep", "xargs"):
        part = best[f"{name}, 1"] / best[f"{name}, {many}"] / many
        print(f"{name}: parallel efficiency {100 * part:.1f} %")
    print(f"workers have a run under way {100 * max(used):.1f} % of the time")
    print(f"CPU time of Python: {1000 * min(own):.2f} ms a run")
    start = min(
        seconds(lambda: subprocess.run([binary.path, "--version"], capture_output=True))
        for _ in range(50)
    )
    models = min(seconds(lambda: Document.model_validate_json(document)) for _ in range(50))
    text = min(seconds(lambda: json.loads(document)) for _ in range(50))
    print(f"start of a process: {1000 * start:.2f} ms")
    print(
        f"document of {len(document)} bytes: "
        f"json {1000 * text:.2f} ms, models {1000 * models:.2f} ms"
    )


if __name__ == "__main__":
    main()
