"""Every registered kernel against its operator's schema: a misspelt constraint or attribute would never match."""

from __future__ import annotations

import pytest

from dovetail.provider.kernels import Kernel
from dovetail.provider.schemas.op_schemas import read_schemas
from dovetail.provider.schemas.schema_check import check_registry, require_valid_registry
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.registry import registry

load_kernels()
KERNELS = sorted((kernel for kernel in registry if kernel.domain == ""), key=lambda kernel: (kernel.op, kernel.since))

REFUSED_ATTRIBUTES = {"Constant": {"sparse_value"}}
"""Attributes that a kernel refuses with an error, op by op: a sparse tensor is no array."""


def _name(kernel: Kernel) -> str:
    return f"{kernel.op}-{kernel.since}"


def test_registry_is_not_empty() -> None:
    assert len(KERNELS) > 100


def test_every_registration_fits_its_operator() -> None:
    assert [str(problem) for problem in check_registry(registry)] == []
    require_valid_registry(registry, "cpu")


def test_operators_of_our_own_are_declared() -> None:
    ours = [kernel for kernel in registry if not read_schemas(kernel.op, kernel.domain)]
    assert {kernel.op for kernel in ours} >= {"Assert"}
    assert [kernel.op for kernel in ours if kernel.declaration is None] == []


@pytest.mark.parametrize("kernel", KERNELS, ids=_name)
def test_kernel_takes_every_attribute(kernel: Kernel) -> None:
    """The reference kernels are whole: they leave no attribute of a version that they serve to others."""
    served = [schema for schema in read_schemas(kernel.op, "") if kernel.covers(schema.since)]
    expected = {name for schema in served for name in schema.attributes} - REFUSED_ATTRIBUTES.get(kernel.op, set())
    assert expected <= kernel.attributes
