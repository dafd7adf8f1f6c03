"""Sweeps: their points, their results in order, and what they refuse."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import polars
import pytest

from tandem_sched import Binary, Refused, Scenario, Sweep, TandemError, run
from tandem_sched.execute import Order, Process, Raw, execute
from tandem_sched.executors import Local, cores

SLEEPY = {"kind": "io", "work": "1ms", "sleep": "1ms", "dist": "exponential"}


@pytest.fixture
def random(two: Scenario) -> Scenario:
    """Return a scenario whose result depends on the seed."""
    return two.with_({"light.workload": SLEEPY})


def test_a_sweep_has_every_combination_in_order(two: Scenario) -> None:
    sweep = Sweep(
        [two, "smoke"],
        seeds=[3, 1],
        knobs={"quantum_us": [20000, 50000], "cosched": ["off"]},
        policies=["tandem", "mutant:stays"],
        duration="3s",
    )
    assert len(sweep) == 2 * 2 * 2 * 2
    first, second = sweep.points[:2]
    assert str(first) == (
        "two --policy=tandem --seed=3 --duration=3s --set=cosched=off --set=quantum_us=20000"
    )
    assert (second.seed, second.scenario.name) == (1, "two")
    assert [p.scenario.name for p in sweep.points] == ["two"] * 8 + ["smoke"] * 8
    assert len(set(sweep.points)) == 16


def test_knobs_may_be_a_list_of_some_combinations(two: Scenario) -> None:
    sweep = Sweep(two, knobs=[{}, {"quantum_us": 9000, "cosched": "off"}])
    assert [dict(p.knobs) for p in sweep.points] == [{}, {"quantum_us": 9000, "cosched": "off"}]


def test_each_result_is_that_of_its_own_point_however_many_workers(random: Scenario) -> None:
    sweep = Sweep(random, seeds=range(10, 22), knobs={"quantum_us": [5000, 50000]})
    frames = []
    for workers in (1, 3):
        results = sweep.run(workers=workers, progress=False)
        assert (len(results), results.reused, results.workers) == (24, 0, workers)
        for result in results:
            point = result.point
            alone = run(point.scenario, seed=point.seed, knobs=dict(point.knobs))
            assert result.document == alone.document
        frames.append(results.frame())
    assert frames[0].equals(frames[1])
    assert frames[0]["seed"].to_list()[::2] == 2 * list(range(10, 22))
    assert frames[0]["used_ns"].n_unique() > 12


def test_settings_are_varied_and_are_columns(two: Scenario) -> None:
    sweep = Sweep(two, settings={"heavy.shares": [100, 300, 900]}, duration="10s")
    frame = sweep.run(progress=False).frame()
    ratios = [
        part.filter(vm="heavy")["used_ns"][0] / part.filter(vm="light")["used_ns"][0]
        for _, part in frame.group_by("heavy.shares", maintain_order=True)
    ]
    assert ratios == pytest.approx([1, 3, 9], rel=0.01)


def test_failed_checks_are_results_and_do_not_end_a_sweep() -> None:
    sweep = Sweep("demo", policies=["tandem", "mutant:wrong-slowest", "mutant:lost-enqueue"])
    results = sweep.run(progress=False)
    assert [r.exit_code for r in results] == [0, 6, 6]
    assert [r.point.policy for r in results.failed] == [
        "mutant:wrong-slowest",
        "mutant:lost-enqueue",
    ]
    assert "skew" in results.failed[0].message
    frame = results.frame()
    assert frame["policy"].unique(maintain_order=True).to_list() == [
        "tandem",
        "mutant:wrong-slowest",
    ]
    assert frame.filter(polars.col("exit_code") == 6)["violated"].min() > 0  # type: ignore[operator]


def test_a_point_that_is_refused_ends_the_sweep_and_names_it(two: Scenario, tmp_path: Path) -> None:
    sweep = Sweep(two, knobs={"quantum_us": [50000, 1]}, seeds=range(50))
    with pytest.raises(Refused, match=r"two --policy=tandem --seed=0 --set=quantum_us=1: .*1") as e:
        sweep.run(progress=False, workers=1, store=tmp_path / "s.jsonl")
    assert e.value.exit_code == 3
    kept = (tmp_path / "s.jsonl").read_bytes().count(b"\n") - 1
    assert kept == 50, "what was run before is kept, and nothing is run after"


def test_of_two_that_are_refused_together_the_first_is_named(
    two: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    start = Local.start

    def noted(self: Local, order: Order) -> object:
        started.append(start(self, order))
        return started[-1]

    monkeypatch.setattr(Local, "start", noted)
    monkeypatch.setattr(
        Local, "ended", lambda *_: [(run, Raw(3, b"", "why", 0.1)) for run in reversed(started)]
    )
    with pytest.raises(Refused, match="two --policy=tandem --seed=0: why"):
        Sweep(two, seeds=range(50)).run(progress=False, workers=1)


def test_what_ends_beside_a_refused_point_is_kept(
    two: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def together(_: Local, under_way: set[object]) -> list[tuple[object, Raw]]:
        first, second = sorted(under_way, key=id)[:2]
        good = run(two).document
        assert good is not None
        return [
            (first, Raw(3, b"", "why", 0.1)),
            (second, Raw(0, good.model_dump_json().encode(), "", 0.1)),
        ]

    monkeypatch.setattr(Local, "ended", together)
    with pytest.raises(Refused, match="why"):
        Sweep(two, seeds=range(4)).run(progress=False, store=tmp_path / "s.jsonl")
    assert (tmp_path / "s.jsonl").read_bytes().count(b"\n") == 2


def test_axes_without_values_or_with_a_value_twice_are_refused(two: Scenario) -> None:
    for words, message in [
        ({"seeds": []}, "seeds: seen none"),
        ({"seeds": [4, 4]}, "seeds: seen 4 twice"),
        ({"policies": []}, "policies: seen none"),
        ({"knobs": {"quantum_us": []}}, "knobs: seen none"),
        ({"knobs": {"cosched": "off"}}, "cannot vary 'cosched': seen 'off', allowed a list"),
        ({"knobs": [{"a": 1, "b": 2}, {"b": 2, "a": 1}]}, "knobs: seen .* twice"),
        ({"settings": {"seed": [1]}}, "cannot vary 'seed'"),
    ]:
        with pytest.raises(Refused, match=message):
            Sweep(two, **words)  # type: ignore[arg-type]
    with pytest.raises(Refused, match=r"scenarios: seen 'two' twice.*; rename one"):
        Sweep([two, two.with_({"duration": "1s"})])
    Sweep([two, two.renamed("three")])
    for workers in (0, -1):
        with pytest.raises(TandemError, match=f"workers: cannot use {workers}"):
            Sweep(two).run(workers=workers, progress=False)
    with pytest.raises(TandemError, match="executor: cannot use 'cloud': allowed 'local', 'ray'"):
        Sweep(two).run(executor="cloud", progress=False)  # type: ignore[arg-type]


def test_axes_that_are_no_lists_and_frames_of_nothing_are_refused(two: Scenario) -> None:
    for axis, value in (("seeds", 3), ("seeds", "12"), ("policies", 7), ("knobs", [3])):
        with pytest.raises(Refused, match=f"cannot be made: {axis}: seen .*, allowed a "):
            Sweep(two, **{axis: value})  # type: ignore[arg-type]
    with pytest.raises(Refused, match="cannot be made: scenarios: seen 5, allowed a list"):
        Sweep(5)  # type: ignore[arg-type]
    results = Sweep(two, seeds=[1], duration="3s").run(progress=False)
    with pytest.raises(Refused, match="cannot make it of 'nope': allowed vms, worlds, pools, "):
        results.frame(of="nope")  # type: ignore[call-overload]
    with pytest.raises(Refused, match="cannot make one of 'nope': allowed 'polars' or 'pandas'"):
        results.frame("nope")  # type: ignore[call-overload]


def test_all_cores_are_used(two: Scenario, tmp_path: Path) -> None:
    log = tmp_path / "log"
    slow = tmp_path / "tandem"
    slow.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo tandem 0 && exit\n'
        f"echo + >> {log}; sleep 0.2; echo - >> {log}; exit 6\n"
    )
    slow.chmod(0o755)
    results = Sweep(two, seeds=range(3 * cores())).run(binary=Binary.find(slow), progress=False)
    assert results.workers == cores()
    under_way = most = 0
    for line in log.read_text().split():
        under_way += 1 if line == "+" else -1
        most = max(most, under_way)
    assert most == cores()
    assert 0.2 * len(results) < results.busy_s < results.wall_s * cores()


def test_an_interrupt_ends_the_processes_of_a_sweep(two: Scenario, tmp_path: Path) -> None:
    slow = tmp_path / "tandem"
    slow.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo tandem 0 && exit\n'
        f"echo $$ >> {tmp_path}/pids; exec sleep 60\n"
    )
    slow.chmod(0o755)

    def interrupt() -> None:
        while not (tmp_path / "pids").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    # A shell's background jobs ignore SIGINT, and Python keeps that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    begin = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            Sweep(two, seeds=range(9)).run(binary=Binary.find(slow), progress=False, workers=2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begin < 20
    pids = (tmp_path / "pids").read_text().split()
    assert pids
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "a process goes on"
        time.sleep(0.01)


def test_a_process_that_starts_while_a_sweep_ends_is_ended_too(
    two: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "tandem"
    slow.write_text('#!/bin/sh\n[ "$1" = --version ] && echo tandem 0 && exit\nexec sleep 60\n')
    slow.chmod(0o755)
    closing = threading.Event()

    def late(binary: str, order: Order, folder: Path, started: Callable[[Process], None]) -> Raw:
        closing.wait()
        time.sleep(0.2)
        return execute(binary, order, folder, started)

    monkeypatch.setattr("tandem_sched.executors.execute", late)
    local = Local(Binary.find(slow), 1)
    run_ = local.start(Sweep(two).points[0].order())
    begin = time.monotonic()
    closing.set()
    local.close()
    assert time.monotonic() - begin < 20
    assert run_.result().exit_code == -signal.SIGKILL


def test_progress_is_shown_and_may_be_left_out(
    two: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    Sweep(two, seeds=range(4)).run(progress=False)
    assert capsys.readouterr() == ("", "")
    Sweep(two, seeds=range(4)).run()
    assert "4/4" in capsys.readouterr().err
