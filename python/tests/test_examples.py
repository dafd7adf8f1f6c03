"""Examples run, and so does the Python of docs/python.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

EXAMPLES = ROOT / "python/examples"


def said(*words: str, folder: Path) -> str:
    """Return what an example prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_notebook_shows_that_shares_hold_under_tandem(tmp_path: Path) -> None:
    text = said(str(EXAMPLES / "notebook.py"), folder=tmp_path)
    assert "build has 3.00 times the CPU time of batch" in text
    assert re.search(r"tandem +┆ 7\.0 +┆ (6\.9|7\.0)", text), text


def test_the_sweep_of_a_thousand_runs_goes_on(tmp_path: Path) -> None:
    example = str(EXAMPLES / "thousand.py")
    for before in (0, 20):
        text = said(example, "--seeds=1", "--store=s.jsonl", folder=tmp_path)
        assert f"20 runs, {before} of them before" in text
        assert "esx-5.1" in text
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_efficiency_is_printed(tmp_path: Path) -> None:
    words = ("--runs=4", "--rounds=1", "--scenario=smoke")
    text = said(str(EXAMPLES / "efficiency.py"), *words, folder=tmp_path)
    assert re.search(r"sweep: parallel efficiency \d+\.\d %", text), text


def test_the_python_of_the_document_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {"__name__": "document"}
    for block in blocks:
        before = text[: text.index(block)].count("\n")
        exec(compile("\n" * before + block, "docs/python.md", "exec"), names)
    assert "3.00" in capsys.readouterr().out
