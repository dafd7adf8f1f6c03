"""Results as frames: one row for each VM, world, pool, pCPU, wake-up or home of each run.

The columns of the point come first: scenario, settings and knobs by name, policy, seed, label.
Those of the object are the fields of the result document; parts have their name before:
``lost_smt_ns``. Lists inside an object are left out, and columns without any value. A home is that
of a NUMA client: its memory has a column for each node, its changes of home one for each reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args

import polars
from pydantic import BaseModel

from tandem_sched.errors import Refused
from tandem_sched.models import NumaClient, RunResult, Times
from tandem_sched.result import Result

Of = Literal["vms", "worlds", "pools", "pcpus", "wakeups", "homes", "runs"]
"""What a row is about."""

NAMES = {"vms": {"name": "vm"}, "worlds": {"name": "world"}, "pools": {"path": "pool"}}
"""Columns that are called otherwise than the field."""

REASONS = (
    *("placed", "imbalance", "swap", "locality"),
    *("action-affinity", "fairness", "roams", "asked"),
)
"""Why homes change: docs/result.md."""


def frame(results: Iterable[Result], of: Of = "vms") -> polars.DataFrame:
    """Return the frame of results, in their order. Runs that a breach ended have no rows."""
    if of not in get_args(Of):
        raise Refused(f"frame: cannot make it of {of!r}: allowed {', '.join(get_args(Of))}")
    rows = [row for result in results for row in _rows(result, of)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return polars.DataFrame(
        [_column(name, [row.get(name) for row in rows]) for name in columns],
    )


def _column(name: str, values: list[Any]) -> polars.Series:
    """Return a column; knobs given as numbers and as names are all text.

    Numbers are signed, so that differences are numbers as well; seeds have 64 bits.
    """
    kinds = {type(value) for value in values if value is not None}
    if name == "seed":
        return polars.Series(name, values, dtype=polars.UInt64)
    if kinds <= {int}:
        return polars.Series(name, values, dtype=polars.Int64)
    return polars.Series(name, values, strict=False)


def _rows(result: Result, of: Of) -> Iterator[dict[str, Any]]:
    point = result.point
    for run in result.document.runs if result.document else []:
        head = {
            "scenario": point.scenario.name,
            **dict(point.settings),
            **dict(point.knobs),
            "policy": point.policy,
            "seed": result.document.seed if result.document else None,
            "label": run.label,
            "duration_ns": run.duration_ns,
            "exit_code": result.exit_code,
            "violated": run.checked.violated if run.checked else None,
        }
        for row in _objects(run, of):
            renamed = NAMES.get(of, {})
            yield head | {renamed.get(name, name): value for name, value in row.items()}


def _objects(run: RunResult, of: Of) -> Iterator[dict[str, Any]]:
    if of == "runs":
        yield _flat(run.host) | (_flat(run.checked) if run.checked else {})
    elif of == "worlds":
        for vm in run.vms:
            for world in vm.worlds:
                yield {"vm": vm.name, **_flat(world)}
    elif of == "homes":
        for vm in run.vms:
            for number, client in enumerate(vm.numa):
                yield {"vm": vm.name, "client": number, **_home(client)}
    else:
        for part in getattr(run, of):
            yield _flat(part)


def _home(client: NumaClient) -> dict[str, Any]:
    """Return the fields of a NUMA client; of reasons that are not in its changes, 0."""
    changes = dict.fromkeys(REASONS, 0) | client.changes
    return {
        **_flat(client),
        "llcs": ",".join(map(str, client.llcs)) or None,
        "local_percent": client.local_percent,
        "migrations": client.migrations,
        **{f"changes_{reason.replace('-', '_')}": count for reason, count in changes.items()},
        **{f"bytes_node{node}": count for node, count in enumerate(client.bytes)},
    }


def _flat(part: BaseModel, before: str = "") -> dict[str, Any]:
    """Return the fields of a part, a VM's own before its times."""
    row: dict[str, Any] = {}
    fields = type(part).model_fields
    for name in sorted(fields, key=lambda name: name in Times.model_fields):
        value = getattr(part, name)
        if isinstance(value, BaseModel):
            row |= _flat(value, f"{before}{name}_")
        elif value is not None and not isinstance(value, list | dict):
            row[before + name] = value
    return row


def pandas_of(table: polars.DataFrame) -> Any:
    """Return the frame as pandas has it (the extra ``pandas``), without Arrow."""
    import pandas

    return pandas.DataFrame({name: table[name].to_list() for name in table.columns})
