"""Figures of a frame, by matplotlib (the extra ``figures``). Each draws into axes and returns them.

They show means over the rows of a group, such as seeds, with the smallest and the largest value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STATES = ("run_ns", "ready_ns", "costop_ns", "wait_ns")
"""The states of a world, whose times sum to its life."""


def _axes(axes: Axes | None) -> Axes:
    if axes is not None:
        return axes
    from matplotlib.figure import Figure

    made: Axes = Figure(layout="constrained").subplots()
    return made


def shares(frame: polars.DataFrame, axes: Axes | None = None) -> Axes:
    """Draw for each VM the CPU time that it used, beside its entitlement, in seconds."""
    axes = _axes(axes)
    table = frame.group_by("vm", maintain_order=True).agg(
        polars.col("used_ns", "entitled_ns").mean() / 1e9
    )
    at = range(len(table))
    axes.bar([x - 0.2 for x in at], table["used_ns"].to_list(), 0.4, label="used")
    axes.bar([x + 0.2 for x in at], table["entitled_ns"].to_list(), 0.4, label="entitled")
    axes.set_xticks(list(at), table["vm"].to_list())
    axes.set_ylabel("CPU time (s)")
    axes.legend()
    return axes


def states(frame: polars.DataFrame, axes: Axes | None = None) -> Axes:
    """Draw for each VM the part of its life in each state, in percent."""
    axes = _axes(axes)
    life = polars.sum_horizontal(STATES)
    table = frame.group_by("vm", maintain_order=True).agg(
        [(100 * polars.col(state) / life).mean().alias(state) for state in STATES]
    )
    left = [0.0] * len(table)
    for state in STATES:
        widths = table[state].to_list()
        axes.barh(table["vm"].to_list(), widths, left=left, label=state.removesuffix("_ns"))
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_xlabel("part of its life (%)")
    axes.invert_yaxis()
    axes.legend()
    return axes


def against(
    frame: polars.DataFrame, x: str, y: str, by: str = "vm", axes: Axes | None = None
) -> Axes:
    """Draw ``y`` over ``x`` with a line for each value of ``by``, and bars from least to most.

    Numbers on ``x`` stand at their place, names beside each other. ``ValueError`` where the frame
    lacks one of these columns.
    """
    for column in (x, y, by):
        if column not in frame.columns:
            raise ValueError(
                f"figure: seen no column {column!r}, allowed {', '.join(frame.columns)}"
            )
    axes = _axes(axes)
    table = frame.group_by(by, x, maintain_order=True).agg(
        mean=polars.col(y).mean(), least=polars.col(y).min(), most=polars.col(y).max()
    )
    for name in table[by].unique(maintain_order=True):
        line = table.filter(polars.col(by) == name)
        if line[x].dtype.is_numeric():
            line = line.sort(x)
        # A mean of equal fractions may be rounded past them.
        errors: Any = [
            (line["mean"] - line["least"]).clip(0).to_list(),
            (line["most"] - line["mean"]).clip(0).to_list(),
        ]
        axes.errorbar(
            line[x].to_list(),
            line["mean"].to_list(),
            yerr=errors,
            marker="o",
            capsize=3,
            label=str(name),
        )
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(title=by)
    return axes
