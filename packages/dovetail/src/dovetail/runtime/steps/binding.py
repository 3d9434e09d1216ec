"""What a provider is told when one of its kernels or partitions is bound to a frame."""

from __future__ import annotations

from functools import partial

from dovetail.plan.manifest import StepRecord
from dovetail.provider.interfaces import BindContext, Provider
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.steps.frame import Frame, Workspace

__all__ = ["make_bind_context"]


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
