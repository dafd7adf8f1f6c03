"""Errors of the package; each carries the message and the exit code of the binary where it ran.

The codes are those of docs/exit-codes.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tandem_sched.result import Result


class TandemError(Exception):
    """Any failure of this package. ``exit_code`` is the binary's; None where none has run."""

    exit_code: int | None

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[type[TandemError], tuple[str, int | None]]:
        """Keep the code where another process is sent the error."""
        return type(self), (str(self), self.exit_code)


class BinaryNotFound(TandemError):
    """There is no ``tandem`` to run."""


class Refused(TandemError):
    """A scenario, knob, policy or sweep is refused: nothing of it was run (exit codes 2 and 3)."""


class CheckFailed(TandemError):
    """The oracle found a violation, or the scenario's expectation was missed (exit code 6).

    ``result`` has the document; None where a breach of the kernel's contract ended the run.
    """

    result: Result | None = None


class RunFailed(TandemError):
    """The binary failed otherwise; ``exit_code`` is negative where a signal ended it."""


class StoreError(TandemError):
    """A store of results cannot be used."""


def error_of(exit_code: int, message: str) -> TandemError:
    """Return the exception that an exit code means."""
    if exit_code in (2, 3):
        return Refused(message, exit_code)
    if exit_code == 6:
        return CheckFailed(message, exit_code)
    return RunFailed(message, exit_code)
