"""What a provider is told when one of its kernels or partitions is bound to a frame."""

from __future__ import annotations

from functools import partial

from dovetail.errors import ProviderError
from dovetail.plan.manifest import StepRecord
from dovetail.provider.calls import call
from dovetail.provider.interfaces import BindContext, CompiledKernel, Provider
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.steps.frame import Frame, Workspace

__all__ = ["bind_kernel", "make_bind_context"]


def make_bind_context(
    record: StepRecord, frame: Frame, workspace: Workspace, provider: Provider, devices: ContextDevices
) -> BindContext:
    """The stream, scratch memory and shapes that a step has in one bound run."""
    return BindContext(
        stream=devices.stream(provider),
        workspace=workspace.address,
        workspace_bytes=workspace.size_bytes,
        input_shapes=[frame.shape_of(index) for index in record.inputs],
        output_shapes=[frame.shape_of(index) for index in record.outputs],
        find_lane=partial(devices.lane, provider),
    )


def bind_kernel(kernel: CompiledKernel, record: StepRecord, context: BindContext) -> CompiledKernel:
    """A kernel for one bound run, checked to be one."""
    bound = call(record.provider, "bind", kernel.bind, context)
    if not isinstance(bound, CompiledKernel):
        raise ProviderError(
            "bind gave no kernel",
            where=f"provider '{record.provider}', step '{record.name}'",
            expected="a CompiledKernel",
            got=type(bound).__name__,
        )
    return bound
