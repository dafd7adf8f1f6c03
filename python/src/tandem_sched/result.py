"""The result of a run, and ``run`` itself."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from tandem_sched.binary import Binary
from tandem_sched.errors import CheckFailed, Refused, RunFailed, error_of
from tandem_sched.execute import Raw, execute
from tandem_sched.models import RESULT_VERSION, Document, RunResult, Vm
from tandem_sched.point import Point, Value, settings_of
from tandem_sched.scenario import Scenario

if TYPE_CHECKING:
    import polars

    from tandem_sched.frame import Of


@dataclass(frozen=True)
class Result:
    """What came of a point.

    ``document`` is None where a breach of the kernel's contract ended the run. ``exit_code`` is 0,
    or 6 where a check failed; ``message`` says which.
    """

    point: Point
    exit_code: int
    message: str
    document: Document | None

    @property
    def passed(self) -> bool:
        """Whether every check held."""
        return self.exit_code == 0

    def run(self, label: str = "") -> RunResult:
        """Return the run of this label; without one the only run."""
        runs = self.document.runs if self.document else []
        for run in runs:
            if run.label == label or (not label and len(runs) == 1):
                return run
        there = ", ".join(repr(run.label) for run in runs) or "none"
        raise KeyError(f"run '{label}': seen none, allowed {there}")

    def vm(self, name: str, label: str = "") -> Vm:
        """Return a VM of a run."""
        return self.run(label).vm(name)

    def frame(self, of: Of = "vms") -> polars.DataFrame:
        """Return a frame with a row for each VM, world, or other object of each run."""
        from tandem_sched.frame import frame

        return frame([self], of)


KEPT = (0, 6)
"""Exit codes of a run that has a result."""


def result_of(point: Point, exit_code: int, document: bytes, message: str) -> Result:
    """Return the result of a run that has one, and raise the error of one that has none."""
    if exit_code not in KEPT:
        raise error_of(exit_code, f"{point}: {message or f'ended with {exit_code}'}")
    try:
        parsed = Document.model_validate_json(document) if document else None
    except ValidationError as e:
        raise RunFailed(
            f"{point}: cannot read the result: seen {e.error_count()} fields that are not those of "
            f"version {RESULT_VERSION}; use the package of this binary's version\n{e}"
        ) from e
    return Result(point, exit_code, message, parsed)


def run(
    scenario: Scenario | str | os.PathLike[str],
    *,
    seed: int | None = None,
    knobs: Mapping[str, Value] | None = None,
    policy: str = "tandem",
    duration: str | None = None,
    oracle: bool = True,
    on_failure: Literal["raise", "return"] = "raise",
    binary: Binary | None = None,
) -> Result:
    """Run a scenario, given as an object, a name or a file.

    A failed check raises ``CheckFailed`` with the result in it, or with ``on_failure="return"`` is
    in the result. ``oracle=False`` is faster, and without entitlements.
    """
    if on_failure not in ("raise", "return"):
        raise Refused(f"run: on_failure: seen {on_failure!r}, allowed 'raise' or 'return'")
    if not isinstance(scenario, Scenario):
        scenario = Scenario.load(scenario)
    point = Point(scenario, seed, settings_of(knobs), policy, duration, oracle)
    binary = binary or Binary.find()
    with tempfile.TemporaryDirectory(prefix="tandem-") as folder:
        raw: Raw = execute(str(binary.path), point.order(), Path(folder))
    result = result_of(point, raw.exit_code, raw.document, raw.message)
    if on_failure == "raise" and not result.passed:
        failed = CheckFailed(f"{point}: {result.message}", result.exit_code)
        failed.result = result
        raise failed
    return result
