"""Scenarios from names, files and objects; what is changed, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import ROOT
from tandem_sched import Host, Refused, Scenario, TandemError, Vm, run


def test_a_name_is_found_from_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (ROOT / "scenarios/smoke/scenario.toml").read_text()
    for folder in (ROOT, ROOT / "crates/sim", tmp_path):
        monkeypatch.chdir(folder)
        assert Scenario.load("smoke") == Scenario("smoke", text)
    for given in (ROOT / "scenarios/smoke", ROOT / "scenarios/smoke/scenario.toml"):
        assert Scenario.load(given) == Scenario("smoke", text)
    (tmp_path / "scenarios/near").mkdir(parents=True)
    (tmp_path / "scenarios/near/scenario.toml").write_text(text)
    (tmp_path / "a/b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a/b")
    assert Scenario.load("near") == Scenario("near", text)
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "mine.toml"
    own.write_text(text)
    assert Scenario.load("mine.toml") == Scenario("mine", text)
    with pytest.raises(Refused, match=r"scenario no-such: cannot find it: seen no such file"):
        Scenario.load("no-such")


def test_objects_and_a_file_of_the_same_text_give_the_same_result(tmp_path: Path) -> None:
    scenario = Scenario.of(
        "made",
        duration="300ms",
        host=Host(cores_per_llc=2),
        vm=[Vm(name="a", vcpus=2, workload={"kind": "duty", "work": "2ms", "sleep": "3ms"})],
    )
    scenario.save(tmp_path / "made.toml")
    loaded = Scenario.load(tmp_path / "made.toml")
    assert loaded == scenario
    first, second = run(scenario), run(loaded)
    assert first.document == second.document
    assert first.document is not None
    assert first.document.scenario == "made"


def test_settings_are_changed_where_their_key_says(two: Scenario) -> None:
    changed = two.with_(
        {
            "light.shares": 900,
            "heavy.workload": {"kind": "duty", "work": "5ms", "sleep": "5ms"},
            "host.sockets": 2,
            "hardware.llc": "8MiB",
            "duration": "1s",
        }
    )
    tables = changed.tables()
    assert [vm["shares"] for vm in tables["vm"]] == [900, 300]
    assert tables["host"] == {"cores_per_llc": 2, "sockets": 2}
    assert tables["hardware"] == {"llc": "8MiB"}
    assert tables["duration"] == "1s"
    deeper = changed.with_({"heavy.workload.sleep": "7ms"}).tables()["vm"][1]["workload"]
    assert deeper == {"kind": "duty", "work": "5ms", "sleep": "7ms"}
    assert two.tables()["vm"][0]["shares"] == 100
    result = run(changed)
    assert result.run().host.pcpus == 4
    assert result.run().duration_ns == 1_000_000_000


def test_a_key_that_leads_nowhere_is_refused_with_what_there_is(two: Scenario) -> None:
    with pytest.raises(Refused, match="seen no 'ligth', allowed heavy, light, a section"):
        two.with_({"ligth.shares": 1})
    with pytest.raises(Refused, match=r"seen no table 'light\.workload'; set that as a whole"):
        two.with_({"light.workload.sleep": "1ms"})
    with pytest.raises(Refused, match=r"cannot read the text: Expected"):
        Scenario("cut", "[host").tables()


def test_one_run_of_several_is_chosen_by_its_label() -> None:
    scenario = Scenario.load("shares-ratio")
    assert scenario.labels[:2] == ("1:7", "2:6")
    result = run(scenario.only("2:6"), duration="4s", on_failure="return")
    assert result.document is not None
    assert [r.label for r in result.document.runs] == ["2:6"]
    with pytest.raises(Refused, match="cannot find run '1:9': allowed '1:7'"):
        run(scenario.only("1:9"))


def test_a_refusal_has_every_reason_of_the_binary_and_its_exit_code(two: Scenario) -> None:
    wrong = two.with_({"light.vcpus": 0, "heavy.shares": 0})
    for attempt in (wrong.check, lambda: run(wrong)):
        with pytest.raises(Refused) as refused:
            attempt()
        assert "scenario two: refused, nothing was run" in str(refused.value)
        assert "vm 'light': vcpus: seen 0, allowed 1..1024" in str(refused.value)
        assert "cannot use 0: allowed 1..262144" in str(refused.value)
        assert refused.value.exit_code == 3
    two.check()


def test_files_and_values_that_cannot_be_are_errors_of_the_package(
    two: Scenario, tmp_path: Path
) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\x7fELF\xff\xfe")
    with pytest.raises(Refused, match=r"cannot read .*binary\.toml: 'utf-8' codec"):
        Scenario.load(binary)
    with pytest.raises(TandemError, match=r"cannot write .*two\.toml: No such file"):
        two.save(tmp_path / "missing" / "two.toml")
    for value in (None, {"a": None}, object()):
        with pytest.raises(Refused, match=r"scenario two: cannot set 'light\.shares': "):
            two.with_({"light.shares": value})
    with pytest.raises(Refused, match="scenario x: cannot set 'title': "):
        Scenario.of("x", host=Host(cores_per_llc=1), title=None)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="scenario two: cannot find run 'zz': allowed ''"):
        two.only("zz")


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", ".."])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="cannot use this name"):
        Scenario(name, "")


def test_a_scenario_may_be_called_scenario(two: Scenario) -> None:
    document = run(two.renamed("scenario")).document
    assert document is not None
    assert document.scenario == "scenario"
