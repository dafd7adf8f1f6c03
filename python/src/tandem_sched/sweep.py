"""Sweeps: a scenario over seeds, knobs, settings and policies, on all cores or on a cluster."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from tqdm.auto import tqdm

from tandem_sched.binary import Binary
from tandem_sched.errors import Refused, RunFailed, StoreError
from tandem_sched.executors import Executor, executor_of
from tandem_sched.frame import Of, frame, pandas_of
from tandem_sched.point import Point, Value, settings_of
from tandem_sched.result import KEPT, Result, result_of
from tandem_sched.scenario import Scenario
from tandem_sched.store import Memory, Record, Store

if TYPE_CHECKING:
    import polars

Grid = Mapping[str, Sequence[Any]]
"""Values of each knob or setting; a sweep has all their combinations."""

OneScenario = Scenario | str | os.PathLike[str]


class Sweep:
    """Every combination of scenarios, settings, policies, knobs and seeds; nothing runs yet.

    ``settings`` are keys of ``Scenario.with_``, such as ``{"a.shares": [100, 300]}``. ``knobs`` and
    ``settings`` may also be a list of mappings, where not every combination is wanted. Without
    ``seeds`` each scenario has its own.
    """

    def __init__(
        self,
        scenarios: OneScenario | Iterable[OneScenario],
        *,
        seeds: Iterable[int] | None = None,
        knobs: Grid | Sequence[Mapping[str, Value]] = (),
        policies: Iterable[str] = ("tandem",),
        settings: Grid | Sequence[Mapping[str, Any]] = (),
        duration: str | None = None,
        oracle: bool = True,
    ) -> None:
        one = isinstance(scenarios, Scenario | str | os.PathLike)
        given: list[Any] = [scenarios] if one else _listed("scenarios", scenarios)
        self.scenarios = [s if isinstance(s, Scenario) else Scenario.load(s) for s in given]
        self.seeds = [None] if seeds is None else _listed("seeds", seeds)
        self.knobs = _combinations("knobs", knobs)
        self.policies = [policies] if isinstance(policies, str) else _listed("policies", policies)
        self.settings = _combinations("settings", settings)
        self.duration = duration
        self.oracle = oracle
        self._refuse()
        self.points = tuple(self._points())

    def _refuse(self) -> None:
        """Refuse an axis without values, with a value twice, or with the name of a column."""
        names = [f"{s.name} {s.label or ''}".strip() for s in self.scenarios]
        axes: dict[str, list[Any]] = {
            "scenarios": names,
            "seeds": self.seeds,
            "knobs": [settings_of(values) for values in self.knobs],
            "policies": self.policies,
            "settings": [settings_of(values) for values in self.settings],
        }
        for name, values in axes.items():
            if not values:
                raise Refused(f"sweep: cannot be made: {name}: seen none, allowed one or more")
            twice = [v for v, n in Counter(map(repr, values)).items() if n > 1]
            if twice:
                raise Refused(
                    f"sweep: cannot be made: {name}: seen {twice[0]} twice, allowed each once"
                    + ("; rename one by Scenario.renamed" if name == "scenarios" else "")
                )
        varied = {key for settings in (*self.knobs, *self.settings) for key in settings}
        taken = varied & {"scenario", "policy", "seed", "label", "vm", "exit_code", "violated"}
        if taken:
            name = sorted(taken)[0]
            raise Refused(f"sweep: cannot vary '{name}' as a setting: it is a column of its own")

    def _points(self) -> Iterator[Point]:
        knobs = [settings_of(values) for values in self.knobs]
        for scenario, settings in itertools.product(self.scenarios, self.settings):
            varied = scenario.with_(settings) if settings else scenario
            for policy, values, seed in itertools.product(self.policies, knobs, self.seeds):
                yield Point(
                    varied,
                    seed,
                    values,
                    policy,
                    self.duration,
                    self.oracle,
                    tuple(settings.items()),
                )

    def __len__(self) -> int:
        """Return the number of runs of the binary."""
        return len(self.points)

    def describe(self, binary: Binary) -> dict[str, Any]:
        """Return what makes this sweep another than others, for the first line of a store."""
        return {
            "scenarios": [[s.name, s.label, s.digest] for s in self.scenarios],
            "seeds": self.seeds,
            "knobs": self.knobs,
            "policies": self.policies,
            "settings": self.settings,
            "duration": self.duration,
            "oracle": self.oracle,
            "binary": [binary.version, binary.digest],
        }

    def run(
        self,
        *,
        workers: int | None = None,
        store: str | os.PathLike[str] | None = None,
        progress: bool = True,
        executor: Literal["local", "ray"] = "local",
        binary: Binary | None = None,
    ) -> Results:
        """Run what is not in the store yet, and return all results.

        ``workers`` is the number of runs at a time, by default one for each core. ``store`` is a
        file; a sweep that was ended in any way goes on from it. A point that is refused raises
        ``Refused`` and ends the sweep; a failed check does not, and is in the results.
        """
        binary = binary or Binary.find()
        kept = Memory() if store is None else Store(Path(store), self.describe(binary))
        keys = {point.key(binary): point for point in self.points}
        reused = sum(key in kept for key in keys)
        left = [(key, point) for key, point in keys.items() if key not in kept]
        begin = time.perf_counter()
        try:
            runs_on = executor_of(executor, binary, workers) if left else None
            with tqdm(
                total=len(keys), initial=reused, unit="run", disable=not progress, smoothing=0.05
            ) as bar:
                busy = _execute(runs_on, left, kept, bar) if runs_on else 0.0
        finally:
            kept.release()
        took = time.perf_counter() - begin
        return Results(self, keys, kept, reused, took, busy, runs_on.workers if runs_on else 0)


def _listed(name: str, values: Any) -> list[Any]:
    """Return the values of an axis."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise Refused(f"sweep: cannot be made: {name}: seen {values!r}, allowed a list of values")
    return list(values)


def _combinations(name: str, grid: Grid | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the mappings of a grid; one empty mapping where nothing is varied."""
    if isinstance(grid, Mapping):
        for key, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise Refused(
                    f"sweep: cannot vary '{key}': seen {values!r}, allowed a list of values"
                )
        return [
            dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
        ]
    listed = _listed(name, grid)
    for one in listed:
        if not isinstance(one, Mapping):
            raise Refused(
                f"sweep: cannot be made: {name}: seen {one!r}, allowed a mapping of names to lists "
                "of values, or a list of mappings"
            )
    return [dict(settings) for settings in listed] or [{}]


def _execute(
    runs_on: Executor,
    left: Iterable[tuple[str, Point]],
    kept: Memory | Store,
    bar: Any,
) -> float:
    """Keep the executor busy, and each result before it counts; return the sum of run times."""
    waiting = iter(left)
    busy = 0.0
    under_way: dict[object, tuple[str, Point]] = {}
    try:
        while True:
            for key, point in itertools.islice(waiting, runs_on.slots - len(under_way)):
                under_way[runs_on.start(point.order())] = key, point
            if not under_way:
                return busy
            ended = dict(runs_on.ended(set(under_way)))
            records, refused = [], []
            # In the order of the sweep: of two that are refused the first is named.
            for run in [run for run in under_way if run in ended]:
                (key, point), raw = under_way.pop(run), ended[run]
                if raw.exit_code in KEPT:
                    records.append(
                        Record(key, raw.exit_code, raw.message, raw.seconds, raw.document)
                    )
                else:
                    refused.append((point, raw))
            kept.append(records)
            busy += sum(record.seconds for record in records)
            bar.update(len(records))
            for point, raw in refused:
                result_of(point, raw.exit_code, raw.document, raw.message)  # raises
    finally:
        runs_on.close()


@dataclass(frozen=True)
class Results:
    """The results of a sweep, in its order; documents are read when they are asked for."""

    sweep: Sweep
    _keys: Mapping[str, Point]
    _kept: Memory | Store
    reused: int
    """Runs that were in the store before."""
    wall_s: float
    """Time that this part of the sweep took, in seconds."""
    busy_s: float
    """Sum of the times of its runs: ``busy_s / (wall_s * workers)`` is the used part of them."""
    workers: int
    """Runs at a time; 0 where all were in the store."""

    def __len__(self) -> int:
        """Return the number of runs of the binary."""
        return len(self._keys)

    def __iter__(self) -> Iterator[Result]:
        """Give each result."""
        for key, point in self._keys.items():
            record = self._kept.read(key)
            try:
                result = result_of(point, record.exit_code, record.document, record.message)
            except RunFailed as e:
                if not isinstance(self._kept, Store):
                    raise
                raise StoreError(
                    f"store {self._kept.path}: cannot use the line of {key!r}; delete the line, "
                    f"and the run is done again: {e}"
                ) from e
            yield result

    @property
    def failed(self) -> list[Result]:
        """Results of which a check failed."""
        return [result for result in self if not result.passed]

    @overload
    def frame(self, kind: Literal["polars"] = ..., *, of: Of = ...) -> polars.DataFrame: ...
    @overload
    def frame(self, kind: Literal["pandas"], *, of: Of = ...) -> Any: ...

    def frame(self, kind: Literal["polars", "pandas"] = "polars", *, of: Of = "vms") -> Any:
        """Return one row for each VM, world, pool, pCPU or wake-up of each run.

        ``kind="pandas"`` needs the extra ``pandas``.
        """
        if kind not in ("polars", "pandas"):
            raise Refused(f"frame: cannot make one of {kind!r}: allowed 'polars' or 'pandas'")
        table = frame(self, of)
        return pandas_of(table) if kind == "pandas" else table
