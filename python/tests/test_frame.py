"""Frames: rows, columns and their types, and figures made of them."""

from __future__ import annotations

from pathlib import Path

import polars
import pytest

from tandem_sched import Scenario, Sweep, figures, run
from tandem_sched.frame import Of
from test_schema import EVERYTHING

HEAD = ["scenario", "policy", "seed", "label", "duration_ns", "exit_code", "violated"]


@pytest.fixture(scope="module")
def everything() -> Scenario:
    return Scenario("everything", EVERYTHING).with_({"duration": "300ms"})


def test_a_row_is_a_vm_of_a_run_with_its_numbers(two: Scenario) -> None:
    result = run(two)
    frame = result.frame()
    assert frame.columns == [
        *HEAD,
        *("vm", "pool", "vcpus", "shares"),
        *("used_ns", "run_ns", "ready_ns", "costop_ns", "limited_ns", "wait_ns", "idle_ns"),
        *("entitled_ns", "migrations", "work"),
    ]
    assert frame["vm"].to_list() == ["light", "heavy"]
    assert frame["used_ns"].to_list() == [result.vm(name).used_ns for name in ("light", "heavy")]
    assert frame.schema["seed"] == polars.UInt64
    late = frame.select(polars.col("ready_ns") - polars.col("run_ns"))
    assert (late.to_series() < 0).any(), "differences below 0 are numbers too"


@pytest.mark.parametrize(
    ("of", "rows", "some"),
    [
        ("vms", 5, {"lost_smt_ns", "moved_node", "guest_rounds", "guest_tasks_pulls"}),
        ("worlds", 10, {"vm", "world", "kind", "lost_remote_ns"}),
        ("pools", 3, {"pool", "entitled_ns", "peak_ns"}),
        ("pcpus", 8, {"id", "busy_ns"}),
        ("wakeups", 10, {"vm", "by", "p99_ns"}),
        ("homes", 6, {"vm", "client", "home", "moved_bytes", "local_percent", "changes_roams"}),
        ("runs", 1, {"pcpus", "nodes", "skew_max_ns"}),
    ],
)
def test_frames_of_each_object(everything: Scenario, of: Of, rows: int, some: set[str]) -> None:
    frame = run(everything, on_failure="return").frame(of)
    assert (frame.height, frame.columns[: len(HEAD)]) == (rows, HEAD)
    assert some <= set(frame.columns)
    assert "worlds" not in frame.columns


def test_homes_have_their_memory_by_node_and_their_changes_by_reason() -> None:
    numa = Scenario.of(
        "numa",
        duration="24s",
        host={"sockets": 2, "cores_per_llc": 2},
        hardware={},
        numa={},
        vm=[{"name": "narrow", "count": 3, "vcpus": 2}, {"name": "wide", "vcpus": 4}],
    )
    result = run(numa)
    frame = result.frame("homes")
    assert frame["vm"].to_list() == ["narrow-1", "narrow-2", "narrow-3", "wide", "wide"]
    assert frame["client"].to_list() == [0, 0, 0, 0, 1]
    clients = [client for vm in result.run().vms for client in vm.numa]
    for row, client in zip(frame.to_dicts(), clients, strict=True):
        assert [row["bytes_node0"], row["bytes_node1"]] == client.bytes
        assert row["changes_placed"] == client.changes["placed"]
        assert row["migrations"] == sum(client.changes.values()) - client.changes["placed"]
        if client.home is None:
            assert (row["home"], row["local_percent"]) == (None, None)
        else:
            local = client.bytes[client.home] / sum(client.bytes)
            assert row["local_percent"] == pytest.approx(100 * local)
    assert frame["migrations"].sum() > 0
    assert any(client.home is None for client in clients)


def test_runs_with_and_without_a_part_are_in_one_frame(two: Scenario) -> None:
    locks = two.with_({"light.workload": {"kind": "barrier", "work": "1ms"}}).renamed("locks")
    frame = Sweep([two, locks]).run(progress=False).frame()
    spun = frame["guest_spin_ns"].to_list()
    assert [value is None for value in spun] == [True, True, False, True]


def test_a_knob_given_as_number_and_as_name_is_text(two: Scenario) -> None:
    frame = (
        Sweep(two, knobs={"cosched": [1, "off"], "quantum_us": [9000]}).run(progress=False).frame()
    )
    assert frame["cosched"].to_list() == ["1", "1", "off", "off"]
    assert frame["quantum_us"].to_list() == [9000] * 4


def test_seeds_of_64_bits_are_exact(two: Scenario) -> None:
    seeds = [2**64 - 1, 2**53 + 1]
    frame = Sweep(two, seeds=seeds).run(progress=False).frame()
    assert frame["seed"].unique(maintain_order=True).to_list() == seeds


def test_pandas_has_the_same_rows(two: Scenario) -> None:
    results = Sweep(two, seeds=[1, 2**64 - 1]).run(progress=False)
    table, other = results.frame(), results.frame("pandas")
    assert list(other.columns) == table.columns
    assert other.to_dict("list") == table.to_dict(as_series=False)


def test_figures_show_the_numbers_of_the_frame(two: Scenario, tmp_path: Path) -> None:
    sweep = Sweep(two, seeds=[1, 2], settings={"heavy.shares": [900, 300]}, duration="1s")
    frame = sweep.run(progress=False).frame()
    bars = figures.shares(frame.filter(polars.col("heavy.shares") == 300))
    used = frame.filter(polars.col("heavy.shares") == 300, vm="heavy")["used_ns"].mean()
    assert isinstance(used, float)
    assert [bar.get_height() for bar in bars.patches][1] == pytest.approx(used / 1e9)  # type: ignore[attr-defined]
    assert [label.get_text() for label in bars.get_xticklabels()] == ["light", "heavy"]
    parts = figures.states(frame)
    widths = [bar.get_width() for bar in parts.patches]  # type: ignore[attr-defined]
    assert sum(widths) == pytest.approx(200), "each VM's states are its life"
    ends = [bar.get_x() + bar.get_width() for bar in parts.patches]  # type: ignore[attr-defined]
    assert max(ends) == pytest.approx(100), "they stand one after the other"
    lines = figures.against(frame, "heavy.shares", "used_ns")
    assert list(lines.get_lines()[0].get_xdata()) == [300, 900]  # type: ignore[arg-type]
    assert lines.get_legend_handles_labels()[1] == ["light", "heavy"]
    equal = polars.DataFrame({"vm": ["a"] * 3, "x": [1] * 3, "y": [0.1] * 3})
    assert figures.against(equal, "x", "y").get_lines()[0].get_ydata()[0] == pytest.approx(0.1)  # type: ignore[index]
    names = figures.against(frame.with_columns(name=polars.lit("x")), "name", "used_ns")
    assert [label.get_text() for label in names.get_xticklabels()] == ["x"]
    with pytest.raises(ValueError, match="seen no column 'speed', allowed"):
        figures.against(frame, "speed", "used_ns")
    figure = lines.get_figure(root=True)
    assert figure is not None
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
