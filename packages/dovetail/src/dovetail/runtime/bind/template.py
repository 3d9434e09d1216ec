"""Programs made ready once per engine: kernels bound, plugins created, constants mapped; contexts copy from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dovetail.allocators import IGpuAllocator
from dovetail.errors import PlanError, ProviderError
from dovetail.plan.attributes import decode_attributes
from dovetail.plan.manifest import KernelRecord, Manifest, PluginRecord, ProgramRecord, StepRecord
from dovetail.plugin.fields import decode_fields
from dovetail.plugin.handle import PluginHandle, locate_error
from dovetail.plugin.interfaces import IPluginResourceContext
from dovetail.plugin.kernels import LAUNCHED, StoredLaunch, decode_launch
from dovetail.plugin.registry import PluginRegistry
from dovetail.plugin.required import broken_rule
from dovetail.provider.calls import call
from dovetail.provider.interfaces import CompiledKernel, StoredKernel, TensorSpec
from dovetail.provider.options import Providers
from dovetail.runtime.bind.instance import ProgramInstance
from dovetail.runtime.bind.partitions import Partitions
from dovetail.runtime.devices.schedule import Schedule
from dovetail.runtime.devices.streams import ContextDevices
from dovetail.runtime.memory.blocks import DeviceWeights
from dovetail.runtime.memory.checks import check_memory, memories_of
from dovetail.runtime.steps.base import Array, Step
from dovetail.runtime.steps.control import Body, make_control_step
from dovetail.runtime.steps.copy import CopyStep
from dovetail.runtime.steps.device_kernel import DeviceKernelStep
from dovetail.runtime.steps.frame import Frame
from dovetail.runtime.steps.kernel import KernelStep
from dovetail.runtime.steps.kernel_plugin import load_kernel_plugin
from dovetail.runtime.steps.loop import BoundSteps, Entry, Silence, add_checks
from dovetail.runtime.steps.partition import PartitionLease, PartitionStep
from dovetail.runtime.steps.plugin import PluginStep
from dovetail.runtime.steps.reformat import ReformatStep
from dovetail.types import TensorRTPhase

__all__ = ["PluginMaker", "ProgramTemplate", "create_runtime_plugin"]


PluginMaker = Callable[[str, PluginRecord], PluginHandle]
"""Makes the plugin of a layer, named first, from its record."""


@dataclass
class _StepTemplate:
    record: StepRecord
    kernel: CompiledKernel | None = None
    handle: PluginHandle | None = None
    launch: tuple[StoredLaunch, bytes] | None = None
    """A plugin that is a kernel of the plan: how it is launched, and its code."""
    partition: PartitionLease | None = None
    bodies: list[ProgramTemplate] = field(default_factory=list)


class ProgramTemplate:
    """One program of a plan with everything that contexts share.

    Plugins are created last and on demand, so that a program with a kernel nobody has runs no code of plugins.
    """

    def __init__(
        self,
        program: ProgramRecord,
        load_blob: Callable[[str], Array],
        providers: Providers,
        partitions: Partitions | None = None,
        weights: DeviceWeights | None = None,
    ) -> None:
        self.program = program
        self._providers = providers
        self._partitions = partitions or Partitions()
        self._weights = weights or DeviceWeights(providers)
        check_memory(program, {name: providers[name] for name in {step.provider for step in program.steps}})
        self.constants = {
            i: self._weights.place(v.memory, v.blob, load_blob(v.blob))
            for i, v in enumerate(program.values)
            if v.blob is not None
        }
        self._steps = [self._prepare(record, load_blob) for record in program.steps]

    def plugin_records(self) -> Iterator[PluginRecord]:
        """What each plugin is to be made from, bodies included."""
        for template in self._steps:
            if template.record.plugin is not None and template.launch is None:
                yield template.record.plugin
            for body in template.bodies:
                yield from body.plugin_records()

    def create_plugins(self, make_plugin: PluginMaker) -> None:
        """Make the plugin of every layer, bodies included; what was made before one fails is among ``handles``."""
        for template in self._steps:
            if template.record.plugin is not None:
                template.handle = self._make_plugin(template, template.record.plugin, make_plugin)
                template.handle.set_tactic(template.record.tactic)
            for body in template.bodies:
                body.create_plugins(make_plugin)

    def _make_plugin(self, template: _StepTemplate, record: PluginRecord, make_plugin: PluginMaker) -> PluginHandle:
        if template.launch is None:
            handle = make_plugin(template.record.name, record)
            if self._providers[template.record.provider].memory.is_host:
                self._require_host(handle, template.record.name)
            return handle
        provider = self._providers[template.record.provider]
        return load_kernel_plugin((record.name, record.version, record.namespace), *template.launch, provider)

    @staticmethod
    def _require_host(handle: PluginHandle, layer: str) -> None:
        try:
            handle.require_host(layer)
        except BaseException:
            handle.destroy()
            raise

    def _prepare(self, record: StepRecord, load_blob: Callable[[str], Array]) -> _StepTemplate:
        if record.kind == "reformat" and not self._providers[record.provider].memory.is_host:
            return _StepTemplate(record, kernel=self._load_reformat(record))
        if record.kind == "plugin" and record.kernel is not None:
            stored = self._stored_kernel(record, load_blob)
            launch = decode_launch(bytes(stored.payload), f"step '{record.name}'")
            return _StepTemplate(record, launch=(launch, bytes(stored.code[LAUNCHED])))
        if record.kind in ("plugin", "reformat", "copy"):
            return _StepTemplate(record)
        if record.kind == "control":
            shared = (load_blob, self._providers, self._partitions, self._weights)
            return _StepTemplate(record, bodies=[ProgramTemplate(body, *shared) for body in record.bodies])
        if record.partition is not None:
            return _StepTemplate(record, partition=self._load_partition(record, load_blob))
        if record.kind != "kernel":
            raise PlanError(f"step kind '{record.kind}' is not known", where=f"step '{record.name}'")
        return _StepTemplate(record, kernel=self._compile(record, load_blob))

    def _compile(self, record: StepRecord, load_blob: Callable[[str], Array]) -> CompiledKernel:
        provider = self._providers[record.provider]
        stored = self._stored_kernel(record, load_blob)
        kernel = call(provider.id, f"load_kernel of step '{record.name}'", provider.load_kernel, stored)
        return _require_kernel(kernel, "load_kernel", record)

    def _load_reformat(self, record: StepRecord) -> CompiledKernel:
        provider = self._providers[record.provider]
        specs = [self.program.values[index] for index in (*record.inputs, *record.outputs)]
        kernel = call(provider.id, f"load_reformat of step '{record.name}'", provider.load_reformat, *specs)
        return _require_kernel(kernel, "load_reformat", record)

    def _stored_kernel(self, record: StepRecord, load_blob: Callable[[str], Array]) -> StoredKernel:
        values = [None if index < 0 else self.program.values[index] for index in record.inputs]
        built = record.kernel or KernelRecord()
        return StoredKernel(
            name=record.name,
            op=record.op,
            domain=record.domain,
            opset=record.opset,
            attributes=decode_attributes(record.attributes, load_blob),
            inputs=[None if value is None else TensorSpec(dtype=value.dtype, type=value.type) for value in values],
            num_outputs=len(record.outputs),
            payload=load_blob(built.payload).data if built.payload else memoryview(b""),
            version=built.version,
            tactic=built.tactic,
            code={name: load_blob(blob).data for name, blob in built.code.items()},
        )

    def _load_partition(self, record: StepRecord, load_blob: Callable[[str], Array]) -> PartitionLease | None:
        return self._partitions.load(
            record,
            self._providers[record.provider],
            load_blob,
            values=self.program.values,
            is_whole=len(self.program.steps) == 1,
        )

    def recompile(self, load_blob: Callable[[str], Array]) -> None:
        """Have the providers make their steps again, for those that take new weights only so; plugins stay."""
        for template in self._steps:
            if template.record.kind == "kernel":
                template.kernel = self._compile(template.record, load_blob)
            elif template.record.partition is not None:
                template.partition = self._load_partition(template.record, load_blob)
            for body in template.bodies:
                body.recompile(load_blob)

    def renew_steps(self, steps: Sequence[Step], devices: ContextDevices) -> list[Step]:
        """The steps of an instance with the kernels of now; attached plugins and everything else stay as they are."""
        return [self._renew(template, step, devices) for template, step in zip(self._steps, steps, strict=True)]

    def _renew(self, template: _StepTemplate, step: Step, devices: ContextDevices) -> Step:
        if template.kernel is not None:
            return self._kernel_step(template.record, template.kernel, devices)
        if template.partition is not None:
            return self._partition_step(template.record, template.partition, devices)
        for body_template, body in zip(template.bodies, step.bodies, strict=True):
            body.steps = body_template.renew_steps(body.steps, devices)
        return step

    def _kernel_step(self, record: StepRecord, kernel: CompiledKernel, devices: ContextDevices) -> Step:
        provider = self._providers[record.provider]
        if provider.memory.is_host:
            return KernelStep(record, self.program.values, provider, kernel, devices)
        return DeviceKernelStep(record, self.program.values, provider, kernel, devices)

    def _partition_step(self, record: StepRecord, partition: PartitionLease, devices: ContextDevices) -> Step:
        return PartitionStep(record, self._providers[record.provider], partition, devices)

    def make_instance(
        self,
        manifest: Manifest,
        profile: int,
        context: IPluginResourceContext,
        *,
        devices: ContextDevices | None = None,
        allocator: IGpuAllocator | None = None,
    ) -> ProgramInstance:
        """The program for one context; every plugin is attached to it.

        Args:
            manifest: The plan that the program is of.
            profile: The profile that it is made for.
            context: What plugins may use.
            devices: The streams of the context.
            allocator: Where the host's memory comes from; None for the process itself.
        """
        used = devices or ContextDevices(self._providers)
        return ProgramInstance(
            manifest,
            profile,
            self.constants,
            lambda silence: self._make_steps(context, used, silence),
            devices=used,
            allocator=allocator,
        )

    def _make_steps(
        self, context: IPluginResourceContext, devices: ContextDevices, silence: Silence, *, in_body: bool = False
    ) -> list[Step]:
        return [self._make_step(template, context, devices, silence, in_body=in_body) for template in self._steps]

    def _make_step(
        self,
        template: _StepTemplate,
        context: IPluginResourceContext,
        devices: ContextDevices,
        silence: Silence,
        *,
        in_body: bool,
    ) -> Step:
        values = self.program.values
        if template.handle is not None:
            attached = template.handle.attach_to_context(context)
            provider = self._providers[template.record.provider]
            if provider.memory.is_host:
                return PluginStep(template.record, values, attached, in_body=in_body)
            queue = devices.stream(provider)
            return PluginStep(template.record, values, attached, provider=provider, devices=devices, queue=queue)
        if template.record.kind == "control":
            bodies = [body.make_body(context, devices, silence) for body in template.bodies]
            return make_control_step(template.record, bodies)
        if template.record.kind == "reformat" and template.kernel is None:
            return ReformatStep(template.record, values)
        if template.record.kind == "copy":
            return CopyStep(template.record, values, devices)
        if template.partition is not None:
            return self._partition_step(template.record, template.partition, devices)
        if template.kernel is None:
            raise PlanError("a step without a kernel", where=f"step '{template.record.name}'")
        return self._kernel_step(template.record, template.kernel, devices)

    def make_body(self, context: IPluginResourceContext, devices: ContextDevices, silence: Silence) -> Body:
        """The same for the body of a loop or branch, where every value is made by its step."""
        program = self.program

        def bind_steps(steps: Sequence[Step], frame: Frame) -> BoundSteps:
            entries = [Entry(step.name, step.bind(frame), step.is_quiet) for step in steps]
            if memories_of(program):
                entries = Schedule(program, steps, devices, silence).bind(entries, frame)
            return BoundSteps(add_checks(entries, devices.check, is_body=True), silence)

        steps = self._make_steps(context, devices, silence, in_body=True)
        return Body(program, self.constants, steps, bind_steps)

    def handles(self) -> Iterator[PluginHandle]:
        """Every plugin the template created, bodies included."""
        for template in self._steps:
            if template.handle is not None:
                yield template.handle
            for body in template.bodies:
                yield from body.handles()

    def constant_slots(self, blob: str) -> Iterator[tuple[ProgramTemplate, int]]:
        """Every place a blob is used as a constant, bodies included."""
        for index, value in enumerate(self.program.values):
            if value.blob == blob:
                yield self, index
        for template in self._steps:
            for body in template.bodies:
                yield from body.constant_slots(blob)


def _require_kernel(kernel: object, callback: str, record: StepRecord) -> CompiledKernel:
    if not isinstance(kernel, CompiledKernel):
        raise ProviderError(
            f"{callback} gave no kernel",
            where=f"provider '{record.provider}', step '{record.name}'",
            expected="a CompiledKernel",
            got=type(kernel).__name__,
        )
    return kernel


def create_runtime_plugin(layer: str, record: PluginRecord, registry: PluginRegistry) -> PluginHandle:
    """Find the creator of a stored plugin and create the plugin from its stored fields.

    Args:
        layer: Name of the layer, which the creator gets.
        record: Identity and fields of the plugin, as a plan stores them.
        registry: Where the creator is found.

    Returns:
        A runtime-phase object, owned.

    Raises:
        PluginError: There is no such creator, or it does not accept the fields.
    """
    creator = registry.get_creator(record.name, record.version, record.namespace)
    fields = decode_fields([{"name": f.name, "type": f.type, "size": f.size, "data": f.data} for f in record.fields])
    where = f"creator of plugin '{record.name}' version '{record.version}'"
    try:
        plugin = creator.create_plugin(layer, fields, TensorRTPhase.RUNTIME)
    except Exception as error:
        raise broken_rule(
            "R36",
            f"create_plugin (RUNTIME) raised {type(error).__name__}: {error}",
            where=f"{where}, {locate_error(error)}",
        ) from error
    if plugin is None:
        what = "create_plugin (RUNTIME) returned None"
        raise broken_rule("R36", what, where=where, got=f"fields {fields.names}")
    return PluginHandle(plugin, phase=TensorRTPhase.RUNTIME, owned=True)
