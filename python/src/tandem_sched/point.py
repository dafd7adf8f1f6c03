"""One run of a sweep: what is run, as arguments of the binary and as a key of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tandem_sched.binary import Binary
from tandem_sched.execute import Order
from tandem_sched.scenario import Scenario

Value = int | str
"""Value of a knob: a number or one of its names, such as ``off``."""


@dataclass(frozen=True)
class Point:
    """A scenario, and everything that ``tandem sim`` takes beside it.

    ``seed`` and ``duration`` are the scenario's where they are None. ``settings`` have been applied
    to the scenario, and are kept as columns of a frame.
    """

    scenario: Scenario
    seed: int | None = None
    knobs: tuple[tuple[str, Value], ...] = ()
    policy: str = "tandem"
    duration: str | None = None
    oracle: bool = True
    settings: tuple[tuple[str, Any], ...] = ()

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of ``tandem sim`` after the scenario."""
        words = [f"--policy={self.policy}"]
        words += [] if self.seed is None else [f"--seed={self.seed}"]
        words += [] if self.duration is None else [f"--duration={self.duration}"]
        words += [f"--set={name}={value}" for name, value in self.knobs]
        words += [] if self.oracle else ["--no-check"]
        return tuple(words)

    def order(self) -> Order:
        """Return what runs it."""
        return self.scenario.order(self.arguments())

    def key(self, binary: Binary) -> str:
        """Return a digest of everything that the result depends on, the binary's bytes included."""
        order = self.order()
        parts = [binary.version, binary.digest, order.name, order.text, *order.arguments]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def __str__(self) -> str:
        """Return the scenario with its settings, and the arguments."""
        settings = "".join(f" {key}={value}" for key, value in self.settings)
        return " ".join([self.scenario.name + settings, *self.arguments()])


def settings_of(knobs: Mapping[str, Value] | None) -> tuple[tuple[str, Value], ...]:
    """Return knobs in the order of their names, so that equal ones have one key."""
    return tuple(sorted((knobs or {}).items()))
