"""Runs: arguments reach the binary, failures are exceptions with its words."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tandem_sched import Binary, BinaryNotFound, CheckFailed, Refused, Scenario, knobs, run

SLOW = "mutant:wrong-slowest"
"""A fault that the oracle finds in the scenario ``demo``."""


def test_shares_come_out_in_the_result(two: Scenario) -> None:
    result = run(two, duration="10s")
    heavy, light = result.vm("heavy"), result.vm("light")
    assert result.passed
    assert heavy.used_ns / light.used_ns == pytest.approx(3, rel=0.01)
    assert [world.name for world in heavy.worlds] == ["vcpu0", "vcpu1"]
    assert heavy.run_ns + heavy.ready_ns + heavy.costop_ns + heavy.wait_ns == 20_000_000_000
    with pytest.raises(KeyError, match="VM 'none': seen none, allowed light, heavy"):
        result.vm("none")
    with pytest.raises(KeyError, match="run 'x': seen none, allowed ''"):
        result.vm("heavy", "x")


def test_seed_policy_knobs_duration_and_oracle_reach_the_binary(two: Scenario) -> None:
    sleepy = {"kind": "io", "work": "1ms", "sleep": "1ms", "dist": "exponential"}
    random = two.with_({"light.workload": sleepy})
    first, again, other = run(random, seed=5), run(random, seed=5), run(random, seed=6)
    assert first.document == again.document
    assert first.document is not None
    assert other.document is not None
    assert first.document.seed == 5
    assert first.document.runs != other.document.runs
    assert first.document.policy == "tandem"
    by_policy = run(two, policy="vtime").document
    assert by_policy is not None
    assert by_policy.policy == "vtime"
    with pytest.raises(Refused, match="policy fifo, which has no shares"):
        run(two, policy="fifo")
    used = {q: run(two, knobs={"quantum_us": q}).vm("light").used_ns for q in (2000, 100000)}
    assert used[2000] != used[100000]
    assert run(two, knobs={"cosched": "off"}).passed
    assert run(two, duration="300ms").run().duration_ns == 300_000_000
    unchecked = run(two, oracle=False)
    assert unchecked.run().checked is None
    assert unchecked.vm("light").entitled_ns == 0


def test_what_is_to_happen_on_failure_is_one_of_two(two: Scenario) -> None:
    with pytest.raises(Refused, match="on_failure: seen 'zz', allowed 'raise' or 'return'"):
        run(two, on_failure="zz")  # type: ignore[arg-type]


def test_a_failed_check_is_an_exception_with_the_result() -> None:
    with pytest.raises(CheckFailed, match=r"duration=15s: the oracle objects:\n.*skew") as failed:
        run("demo", duration="15s", policy=SLOW)
    assert failed.value.exit_code == 6
    result = failed.value.result
    assert result is not None
    assert not result.passed
    checked = result.run().checked
    assert checked is not None
    assert checked.violated > 0
    returned = run("demo", duration="15s", policy=SLOW, on_failure="return")
    assert returned == result


def test_a_breach_of_the_kernels_contract_leaves_no_document() -> None:
    with pytest.raises(CheckFailed, match="contract custody: seen in no queue") as failed:
        run("smoke", policy="mutant:lost-enqueue")
    assert failed.value.result is not None
    assert failed.value.result.document is None
    assert failed.value.result.frame().height == 0


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        ({"policy": "no-such"}, "no-such", 3),
        ({"knobs": {"no_such": 1}}, "knob 'no_such': cannot set it", 3),
        ({"knobs": {"quantum_us": 1}}, "quantum_us", 3),
        ({"duration": "ten"}, "ten", 2),
        ({"seed": -1}, "-1", 2),
    ],
)
def test_wrong_input_is_refused_in_the_words_of_the_binary(
    two: Scenario, words: dict[str, object], message: str, code: int
) -> None:
    with pytest.raises(Refused, match=message) as refused:
        run(two, **words)  # type: ignore[arg-type]
    assert refused.value.exit_code == code
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (str(copy), copy.exit_code) == (str(refused.value), code)


def test_knobs_are_listed_with_their_ranges() -> None:
    quantum = knobs()["quantum_us"]
    assert (quantum.default, quantum.min, quantum.max) == (50_000, 1_000, 1_000_000)


def test_the_binary_is_that_of_the_variable_the_path_or_the_checkout(
    binary: Binary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TANDEM", str(binary.path))
    assert Binary.find() == binary
    monkeypatch.delenv("TANDEM")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "tandem").symlink_to(binary.path)
    assert Binary.find() == binary
    (tmp_path / "tandem").unlink()
    built = tmp_path / "target/release/tandem"
    built.parent.mkdir(parents=True)
    built.symlink_to(binary.path)
    (tmp_path / "a/b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a/b")
    assert Binary.find() == binary


def test_a_binary_that_is_none_is_named_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for path, seen in [("/usr/bin/echo", "seen 'echo"), (str(tmp_path / "no"), "No such file")]:
        monkeypatch.setenv("TANDEM", path)
        with pytest.raises(BinaryNotFound, match=seen) as error:
            Binary.find()
        assert path in str(error.value)
        assert "build it by 'cargo build --release -p tandem', or set TANDEM" in str(error.value)
    monkeypatch.delenv("TANDEM")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tandem_sched.binary._built", lambda: [tmp_path / "none"])
    with pytest.raises(BinaryNotFound, match="cannot find the binary: seen none by the variable"):
        Binary.find()
