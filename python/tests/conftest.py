"""What all tests share: the binary under test, and small scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem_sched import Binary, Host, Scenario, Vm

ROOT = Path(__file__).parents[2]
"""The checkout."""


@pytest.fixture(scope="session")
def binary() -> Binary:
    return Binary.find()


@pytest.fixture
def two() -> Scenario:
    """Two VMs of shares 1:3 that want everything, on two pCPUs, for 200 ms."""
    return Scenario.of(
        "two",
        duration="200ms",
        host=Host(cores_per_llc=2),
        vm=[Vm(name="light", vcpus=2, shares=100), Vm(name="heavy", vcpus=2, shares=300)],
    )
