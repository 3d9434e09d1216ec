"""Plugins that are a kernel, on a GPU: PTX and cubins out of a plan, with integers among their parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import dovetail
from dovetail import KernelLaunch
from dovetail.expr import Constant, DimensionOperation, IExprBuilder
from dovetail_cuda.run.driver import Driver
from tests.cuda.kernel_plugins import ScalePlugin, build

BLOCK = 256


@triton.jit
def scale(source, count, factor, target, block: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0) * block + tl.arange(0, block)
    inside = places < count
    tl.store(target + places, tl.load(source + places, mask=inside) * factor, mask=inside)


def compile_scale(capability: int) -> Any:
    """The kernel for a device, which need not be here."""
    signature = {"source": "*fp32", "count": "i32", "factor": "i32", "target": "*fp32", "block": "constexpr"}
    made = ASTSource(fn=scale, signature=signature, constexprs={(4,): BLOCK})
    return triton.compile(
        made, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4, "enable_fp_fusion": True}
    )


class CompiledScale(ScalePlugin):
    """Brings PTX or a cubin."""

    form = "ptx"

    def get_kernel_launch(self, in_: Any, out: Any) -> KernelLaunch:
        major, minor = Driver().describe_device(0).capability
        made = compile_scale(10 * major + minor)
        code = made.asm[self.form]
        dims = [KernelLaunch.name_dimension(0, axis) for axis in range(2)]
        count = IExprBuilder().operation(DimensionOperation.PROD, *dims)
        blocks = IExprBuilder().operation(DimensionOperation.CEIL_DIV, count, Constant(BLOCK))
        return KernelLaunch(
            name=made.metadata.name,
            code=code.encode() if isinstance(code, str) else bytes(code),
            grid=(blocks, Constant(1), Constant(1)),
            block=(Constant(128), Constant(1), Constant(1)),
            shared_bytes=Constant(made.metadata.shared),
            arguments=(count, Constant(self.factor)),
        )


@pytest.mark.parametrize("form", ["ptx", "cubin"])
@pytest.mark.parametrize("tactics", [(), (1, 2)])
def test_a_kernel_of_a_plugin_runs_out_of_a_plan(cuda: Any, form: str, tactics: tuple[int, ...]) -> None:
    plugin = CompiledScale(tactics, factor=-3)
    plugin.form = form
    engine = dovetail.Runtime().deserialize_cuda_engine(build(plugin))
    for rows in (20, 1, 100, 0, 20, 20, 20):
        x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        np.testing.assert_array_equal(engine(x), x * -3)
    engine.close()
