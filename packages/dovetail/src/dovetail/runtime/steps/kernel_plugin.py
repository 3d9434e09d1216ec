"""A plugin whose kernel is in the plan: the engine launches it, and no code of the author's is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.errors import PluginError
from dovetail.plugin.handle import PluginHandle
from dovetail.plugin.interfaces import (
    IPluginResourceContext,
    IPluginV3,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
    PluginCapabilityType,
)
from dovetail.plugin.kernels import LaunchShape, StoredLaunch
from dovetail.provider.calls import call
from dovetail.provider.interfaces import DeviceKernel, Provider
from dovetail.types import PluginTensorDesc, TensorRTPhase

__all__ = ["KernelPlugin", "load_kernel_plugin"]


class KernelPlugin(IPluginV3, IPluginV3OneCore, IPluginV3OneRuntime):
    """Launches a stored kernel; contexts share the loaded code, which goes with the object that loaded it."""

    def __init__(self, identity: tuple[str, str, str], launch: StoredLaunch, kernel: DeviceKernel) -> None:
        super().__init__()
        self.plugin_name, self.plugin_version, self.plugin_namespace = identity
        self._launch, self._kernel, self._is_owner = launch, kernel, True
        self._shape: LaunchShape | None = None
        self._input_shapes: list[tuple[int, ...]] = []

    def get_capability_interface(self, type: PluginCapabilityType) -> Any:  # noqa: A002 - the contract's name
        """This object runs, and nothing else."""
        return None if type is PluginCapabilityType.BUILD else self

    def clone(self) -> KernelPlugin:
        """A twin that uses the same code."""
        twin = object.__new__(KernelPlugin)
        twin.__dict__.update(self.__dict__)
        twin._is_owner = False
        return twin

    def destroy(self) -> None:
        """Give the code back, where this object loaded it."""
        if self._is_owner:
            self._kernel.close()

    def attach_to_context(self, resource_context: IPluginResourceContext) -> KernelPlugin:
        """A twin for a context."""
        return self.clone()

    def set_tactic(self, tactic: int) -> None:
        """The kernel was made for its tactic."""

    def on_shape_change(self, in_: Sequence[PluginTensorDesc], out: Sequence[PluginTensorDesc]) -> None:
        """Compute the launch for these shapes; an address that changed brings the same ones again."""
        shapes = [tuple(desc.dims) for desc in in_]
        if self._shape is None or shapes != self._input_shapes:
            self._shape = self._launch.at(shapes, f"plugin '{self.plugin_name}'")
            self._input_shapes = shapes

    def enqueue(
        self,
        input_desc: Sequence[PluginTensorDesc],
        output_desc: Sequence[PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> None:
        """Put the kernel on the stream."""
        shape = self._shape
        if shape is None:
            raise PluginError("a kernel was not told its shapes", where=f"plugin '{self.plugin_name}'")
        if not shape.is_empty:
            self._kernel.launch(shape, [*inputs, *shape.arguments, *outputs], int(stream))

    def get_fields_to_serialize(self) -> list[Any]:
        """None: the plan has the kernel."""
        return []


def load_kernel_plugin(
    identity: tuple[str, str, str], launch: StoredLaunch, code: bytes, provider: Provider
) -> PluginHandle:
    """The plugin of a stored kernel, with its code on the device of a provider."""
    where = f"load_device_kernel of plugin '{identity[0]}'"
    kernel = call(provider.id, where, provider.load_device_kernel, code, launch.name)
    return PluginHandle(KernelPlugin(identity, launch, kernel), phase=TensorRTPhase.RUNTIME, owned=True)
