"""Stores: a sweep that is killed goes on, and nothing is lost, mixed up or damaged unseen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tandem_sched import Binary, Scenario, StoreError, Sweep
from tandem_sched import execute as execution
from tandem_sched.store import Memory, Record, Store

RUNS = 60

KILLED = """
import sys
from tandem_sched import Scenario, Sweep
sweep = Sweep(Scenario.load(sys.argv[1]), seeds=range({runs}))
sweep.run(store=sys.argv[2], workers=2, progress=False)
"""


def keys(file: Path) -> list[str]:
    """Return the keys of the results that are whole, in the file's order."""
    lines = file.read_bytes().split(b"\n")[1:-1]
    return [json.loads(line)["key"] for line in lines]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the arguments of each run that is executed in this process."""
    runs: list[str] = []
    real = execution.execute

    def count(binary: str, order: execution.Order, folder: Path, started: object) -> object:
        runs.append(" ".join(order.arguments))
        return real(binary, order, folder, started)  # type: ignore[arg-type]

    monkeypatch.setattr("tandem_sched.executors.execute", count)
    return runs


def test_a_sweep_that_is_killed_goes_on_and_loses_nothing(
    two: Scenario, tmp_path: Path, counted: list[str]
) -> None:
    busy = two.with_(
        {"duration": "5s", "light.workload": {"kind": "io", "work": "1ms", "sleep": "1ms"}}
    )
    busy.save(tmp_path / "two.toml")
    store = tmp_path / "results.jsonl"
    words = [sys.executable, "-c", KILLED.format(runs=RUNS), str(tmp_path / "two.toml"), str(store)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for kill in (1, 2):
        before = len(keys(store)) if store.exists() else 0
        process = subprocess.Popen(words, env=environment)
        while not store.exists() or len(keys(store)) < before + 5:
            assert process.poll() is None, "it has ended before it was killed"
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, kill
    kept = keys(store)
    assert 10 <= len(kept) < RUNS
    assert len(set(kept)) == len(kept)
    with store.open("ab") as file:
        file.write(b'{"key":"a line that a kill has cut')
    sweep = Sweep(Scenario.load(tmp_path / "two.toml"), seeds=range(RUNS))
    results = sweep.run(store=store, progress=False)
    assert results.reused == len(kept)
    assert len(counted) == RUNS - len(kept)
    assert keys(store)[: len(kept)] == kept
    assert len(set(keys(store))) == len(keys(store)) == RUNS
    assert results.frame().equals(sweep.run(progress=False).frame())


def test_a_sweep_that_is_whole_is_not_run_again(
    two: Scenario, tmp_path: Path, counted: list[str]
) -> None:
    sweep = Sweep(two, seeds=range(5), policies=["tandem", "mutant:lost-enqueue"], duration="3s")
    first = sweep.run(store=tmp_path / "s", progress=False)
    bytes_ = (tmp_path / "s").read_bytes()
    assert len(counted) == 10
    second = sweep.run(store=tmp_path / "s", progress=False)
    assert (len(counted), second.reused, second.workers) == (10, 10, 0)
    assert (tmp_path / "s").read_bytes() == bytes_
    assert list(first) == list(second)
    assert [r.exit_code for r in second] == [0] * 5 + [6] * 5


def test_a_store_of_another_sweep_is_refused_with_what_differs(
    two: Scenario, tmp_path: Path, binary: Binary
) -> None:
    store = tmp_path / "s.jsonl"
    Sweep(two, seeds=[1, 2]).run(store=store, progress=False)
    before = store.read_bytes()
    for other, seen in [
        (Sweep(two, seeds=[1, 2, 3]), r"seen seeds \[1, 2\], allowed seeds \[1, 2, 3\]"),
        (Sweep(two, seeds=[1, 2], policies=["vtime"]), "seen policies"),
        (Sweep(two, seeds=[1, 2], knobs={"cosched": ["off"]}), "seen knobs"),
        (Sweep(two, seeds=[1, 2], duration="1s"), 'seen duration null, allowed duration "1s"'),
        (Sweep(two, seeds=[1, 2], oracle=False), "seen oracle true"),
        (Sweep(two.with_({"light.shares": 7}), seeds=[1, 2]), "seen scenarios"),
    ]:
        with pytest.raises(StoreError, match=seen) as error:
            other.run(store=store, progress=False)
        assert "name another file, or make the sweep as it was" in str(error.value)
    changed = Binary(binary.path, binary.version, "0" * 64)
    with pytest.raises(StoreError, match="seen binary"):
        Sweep(two, seeds=[1, 2]).run(store=store, progress=False, binary=changed)
    assert store.read_bytes() == before


def test_files_that_are_no_store_are_refused_and_stay_as_they_are(
    two: Scenario, tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    for text in ("my notes\n", '{"tandem_sweep": 99}\n', '"text"\n', "no end"):
        file.write_text(text)
        with pytest.raises(StoreError, match="allowed the store of a sweep"):
            Sweep(two).run(store=file, progress=False)
        assert file.read_text() == text
    with pytest.raises(StoreError, match="cannot be written: No such file or directory"):
        Sweep(two).run(store=tmp_path / "no/store", progress=False)
    with pytest.raises(StoreError, match="cannot be written: Is a directory"):
        Sweep(two).run(store=tmp_path, progress=False)


def test_a_line_that_is_damaged_is_named_and_not_passed_over(two: Scenario, tmp_path: Path) -> None:
    store = tmp_path / "s.jsonl"
    sweep = Sweep(two, seeds=range(3))
    sweep.run(store=store, progress=False)
    lines = store.read_bytes().splitlines(keepends=True)
    for damaged in (b"\0\0\0\n", b"{}\n", lines[2][:-20] + b"\n"):
        store.write_bytes(b"".join([*lines[:2], damaged, *lines[3:]]))
        with pytest.raises(StoreError, match=r"cannot read line 3: seen .*delete the line"):
            sweep.run(store=store, progress=False)
    store.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    assert sweep.run(store=store, progress=False).reused == 2


def test_a_line_whose_result_lacks_a_field_is_named(two: Scenario, tmp_path: Path) -> None:
    store = tmp_path / "s.jsonl"
    sweep = Sweep(two, seeds=range(2))
    sweep.run(store=store, progress=False)
    store.write_bytes(store.read_bytes().replace(b'"used_ns"', b'"used"', 1))
    results = sweep.run(store=store, progress=False)
    with pytest.raises(StoreError, match=r"s.jsonl: cannot use the line of .*delete the line"):
        results.frame()


def test_one_sweep_at_a_time_writes_to_a_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", {"a": 1})
    with pytest.raises(StoreError, match="another sweep is writing to it; wait for its end"):
        Store(tmp_path / "s", {"a": 1})
    store.append([Record("k", 0, "", 0.5, b'{"a": 1}')])
    store.release()
    second = Store(tmp_path / "s", {"a": 1})
    assert second.read("k") == store.read("k") == Record("k", 0, "", 0.5, b'{"a":1}')


def test_a_result_is_on_the_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "s", {})
    synced: list[int] = []
    real = os.fdatasync

    def sync(file: int) -> None:
        real(file)
        synced.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fdatasync", sync)
    store.append([Record("a", 0, "", 1, b""), Record("b", 6, "why", 1, b"")])
    assert synced == [(tmp_path / "s").stat().st_size]
    assert ("a" in store, "b" in store, "c" in store) == (True, True, False)
    assert store.read("b") == Record("b", 6, "why", 1, b"")


def test_memory_keeps_what_a_file_keeps() -> None:
    memory = Memory()
    memory.append([Record("a", 6, "why", 0.25, b"[1]")])
    assert "a" in memory
    assert "b" not in memory
    assert memory.read("a") == Record("a", 6, "why", 0.25, b"[1]")
