"""Runs the binary once, in this process or in a worker of a cluster.

It uses the standard library alone, so that a worker needs nothing but Python.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Order(NamedTuple):
    """What to run: a scenario's name and text, and the arguments of ``tandem sim`` after it."""

    name: str
    text: str
    digest: str
    arguments: tuple[str, ...]


class Raw(NamedTuple):
    """What came of it: exit code, result document (empty if none), message and wall time."""

    exit_code: int
    document: bytes
    message: str
    seconds: float


Process = subprocess.Popen[bytes]


def lay(folder: Path, order: Order) -> Path:
    """Write the scenario below ``folder`` as a name that the binary finds; return where.

    The binary calls a scenario ``NAME/scenario.toml`` by its name, in messages as in results.
    """
    at = folder / order.digest
    file = at / order.name / "scenario.toml"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        # Two threads may write the same scenario: the file has its name once it is whole.
        draft = file.with_name(f"draft-{os.getpid()}-{threading.get_ident()}")
        draft.write_text(order.text, encoding="utf-8")
        draft.replace(file)
    return at


def execute(
    binary: str,
    order: Order,
    folder: Path,
    started: Callable[[Process], None] = lambda _: None,
) -> Raw:
    """Run ``order`` to its end; ``started`` is called with the process."""
    begin = time.perf_counter()
    # Tables and messages go to memory: a single pipe is read without a selector.
    with os.fdopen(os.memfd_create("tandem-stderr"), "rb") as said:
        process = subprocess.Popen(
            [binary, "sim", order.name, *order.arguments, "--json", "-"],
            cwd=lay(folder, order),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
        )
        started(process)
        document, _ = process.communicate()
        seconds = time.perf_counter() - begin
        message = ""
        if process.returncode:
            said.seek(0)
            message = message_of(said.read().decode("utf-8", "replace"))
    return Raw(process.returncode, document, message, seconds)


def message_of(said: str) -> str:
    """Return the error of a standard error that has tables before it."""
    mark = "\ntandem: "
    at = ("\n" + said).find(mark)
    return (said[at + len(mark) - 1 :] if at >= 0 else said).strip()


def execute_shipped(content: bytes, digest: str, order: Order) -> Raw:
    """Run ``order`` by a binary of these bytes, which is kept for the next run of this machine."""
    folder = Path(tempfile.gettempdir()) / f"tandem-worker-{os.getuid()}-{digest[:16]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder}: belongs to another user; delete it")
    binary = folder / "tandem"
    if not binary.exists():
        draft = folder / f"draft-{os.getpid()}"
        draft.write_bytes(content)
        draft.chmod(0o700)
        draft.replace(binary)
    with tempfile.TemporaryDirectory(prefix="tandem-") as scenarios:
        return execute(str(binary), order, Path(scenarios))
