"""Finds the ``tandem`` binary, and what identifies it: version and digest."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem_sched.errors import BinaryNotFound, error_of
from tandem_sched.execute import message_of

VARIABLE = "TANDEM"
"""Environment variable that names the binary."""

BUILT = Path("target/release/tandem")
"""Where a checkout has it after ``cargo build --release -p tandem``."""


@dataclass(frozen=True)
class Binary:
    """A ``tandem`` binary: its path, what ``--version`` prints, and the SHA-256 of its bytes."""

    path: Path
    version: str
    digest: str

    @staticmethod
    def find(path: str | os.PathLike[str] | None = None) -> Binary:
        """Return the binary at ``path``; by default that of ``TANDEM``, the path or the checkout.

        The checkout is the folder above this package, or the current one or one above it.
        """
        file = Path(path) if path is not None else _found()
        return _identified(file.resolve(), _stamp(file))

    def ask(self, *words: str, cwd: Path | None = None) -> str:
        """Run a command that prints something, in ``cwd``; return what it prints."""
        done = subprocess.run(
            [self.path, *words], cwd=cwd, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise error_of(done.returncode, message_of(done.stderr))
        return done.stdout

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the result document."""
        schema: dict[str, Any] = json.loads(self.ask("schema", "result"))
        return schema


def _found() -> Path:
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    on_path = shutil.which("tandem")
    if on_path:
        return Path(on_path)
    for file in _built():
        if file.is_file():
            return file
    seen = f"seen none by the variable {VARIABLE}, on PATH and as {BUILT} of a checkout"
    raise BinaryNotFound(
        f"tandem: cannot find the binary: {seen}; "
        f"build it by 'cargo build --release -p tandem', or set {VARIABLE}"
    )


def _built() -> Sequence[Path]:
    here = Path.cwd()
    return [folder / BUILT for folder in (here, *here.parents, *Path(__file__).parents)]


def _stamp(file: Path) -> tuple[int, int]:
    """Return what changes with the file's content."""
    try:
        stat = file.stat()
    except OSError as e:
        raise BinaryNotFound(_unusable(file, e.strerror)) from e
    return stat.st_mtime_ns, stat.st_size


def _unusable(file: Path, seen: object) -> str:
    return (
        f"{file}: cannot run it: seen {seen}, allowed a tandem binary; "
        f"build it by 'cargo build --release -p tandem', or set {VARIABLE}"
    )


@functools.lru_cache(maxsize=16)
def _identified(file: Path, _stamp: tuple[int, int]) -> Binary:
    try:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        done = subprocess.run([file, "--version"], capture_output=True, text=True, check=False)
    except OSError as e:
        raise BinaryNotFound(_unusable(file, e.strerror)) from e
    if done.returncode or not done.stdout.startswith("tandem "):
        raise BinaryNotFound(_unusable(file, repr(done.stdout[:40])))
    return Binary(file, done.stdout.strip(), digest)


@dataclass(frozen=True)
class Knob:
    """A knob of the scheduler: docs/knobs.md."""

    name: str
    default: int
    min: int
    max: int
    unit: str
    meaning: str


def knobs(binary: Binary | None = None) -> dict[str, Knob]:
    """Return every knob of the scheduler by name."""
    listed = json.loads((binary or Binary.find()).ask("knobs", "--json"))
    return {knob["name"]: Knob(**knob) for knob in listed}
