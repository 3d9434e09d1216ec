"""From a planned partition to what the plan stores: kernels compiled, products chosen, launches in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dovetail.provider.interfaces import BuildContext, BuildReport, BuiltPartition, NodeReport
from dovetail_cuda.compile.request import CompiledCode, KernelRequest
from dovetail_cuda.compile.source import KernelText, write_kernel
from dovetail_cuda.compile.store import KernelStore
from dovetail_cuda.emit.choose import ChosenProduct, LibraryProduct, ProductChooser
from dovetail_cuda.emit.kernels import KernelTable, request_text
from dovetail_cuda.emit.memory import BufferTable, place_buffers
from dovetail_cuda.graph.planner import PartitionPlan
from dovetail_cuda.graph.regions import ElementRegion, ProductRegion, Region, Stored, list_offsets, list_operands
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.products import describe_product, is_small
from dovetail_cuda.lower.tensors import refuse
from dovetail_cuda.lower.tiles import choose_tile
from dovetail_cuda.run.payload import (
    VERSION,
    WORKSPACE_BYTES,
    KernelLaunch,
    LaunchList,
    Product,
    ProductLaunch,
    write_payload,
)

__all__ = ["EmitOptions", "emit_partition"]


@dataclass(frozen=True, kw_only=True)
class EmitOptions:
    """What code is made for, and with."""

    capability: int
    multiprocessors: int
    allows_tf32: bool
    store: KernelStore
    make_chooser: Callable[[BuildContext], ProductChooser]


@dataclass(frozen=True, kw_only=True)
class _ElementStep:
    """A generated kernel."""

    region: ElementRegion
    text: KernelText
    request: KernelRequest

    @property
    def buffers(self) -> Sequence[str]:
        return self.text.buffers


@dataclass(frozen=True, kw_only=True)
class _ProductStep:
    """A product, by whichever way is chosen for it."""

    region: ProductRegion
    product: Product

    @property
    def buffers(self) -> Sequence[str]:
        return list_operands(self.region)


_Step = _ElementStep | _ProductStep


def emit_partition(plan: PartitionPlan, context: BuildContext, options: EmitOptions) -> BuiltPartition:
    """Compile a partition."""
    return _Emitter(plan, context, options).emit()


@dataclass
class _Emitter:
    plan: PartitionPlan
    context: BuildContext
    options: EmitOptions
    kernels: KernelTable = field(default_factory=KernelTable)
    nodes: list[NodeReport] = field(default_factory=list)

    def emit(self) -> BuiltPartition:
        steps = [self._make_step(region) for region in self.plan.regions]
        compiled = self._compile([step for step in steps if isinstance(step, _ElementStep)])
        chosen = self._choose([step.product for step in steps if isinstance(step, _ProductStep)])
        buffers = place_buffers(self.plan, [step.buffers for step in steps])
        launches = [self._make_launch(step, compiled, chosen, buffers) for step in steps]
        has_products = any(isinstance(launch, ProductLaunch) for launch in launches)
        workspace_bytes = buffers.arena_bytes + (WORKSPACE_BYTES if has_products else 0)
        payload = LaunchList(
            kernels=self.kernels.records,
            buffers=buffers.records,
            launches=launches,
            output_shapes=[list(self.plan.buffers[name].shape) for name in self.plan.outputs],
            arena_bytes=buffers.arena_bytes,
            workspace_bytes=workspace_bytes,
        )
        return BuiltPartition(
            payload=write_payload(payload),
            weights=self.plan.weights,
            version=VERSION,
            code=self.kernels.code,
            workspace_bytes=workspace_bytes,
            report=BuildReport(nodes=self.nodes),
        )

    # steps

    def _make_step(self, region: Region) -> _Step:
        if isinstance(region, ProductRegion):
            product = describe_product(region, allows_tf32=self.options.allows_tf32)
            if not is_small(product):
                return _ProductStep(region=region, product=product)
            region = _sum_rows(region)
        text = write_kernel(region, choose_tile(region, self.options.multiprocessors))
        return _ElementStep(region=region, text=text, request=request_text(text, self.options.capability))

    def _compile(self, steps: Sequence[_ElementStep]) -> dict[str, CompiledCode]:
        requests = [step.request for step in steps]
        made = self.options.store.get_all(requests, self.context.workers)
        return {request.make_key(): code for request, code in zip(requests, made, strict=True)}

    def _choose(self, products: Sequence[Product]) -> dict[Product, ChosenProduct]:
        distinct = list(dict.fromkeys(products))
        if not distinct:
            return {}
        chooser = self.options.make_chooser(self.context)
        chooser.prepare(distinct)
        chosen = {}
        for number, product in enumerate(distinct):
            self.context.report(number, len(distinct))
            chosen[product] = chooser.choose(product)
        return chosen

    # launches

    def _make_launch(
        self,
        step: _Step,
        compiled: dict[str, CompiledCode],
        chosen: dict[Product, ChosenProduct],
        buffers: BufferTable,
    ) -> KernelLaunch | ProductLaunch:
        layers = list(step.region.layers)
        if isinstance(step, _ElementStep):
            kernel = self.kernels.add(step.request, compiled[step.request.make_key()])
            self._report(step.region, f"generated, {step.text.grid} blocks of {step.text.num_warps} warps", None)
            return KernelLaunch(
                kernel=kernel, grid=(step.text.grid, 1, 1), buffers=buffers.find(step.buffers), layers=layers
            )
        found, offsets = chosen[step.product], list_offsets(step.region)
        self._report(step.region, found.name, found.time_us)
        if isinstance(found.way, LibraryProduct):
            return ProductLaunch(
                product=step.product,
                buffers=buffers.find(step.buffers),
                offsets=offsets,
                algorithm=found.way.algorithm,
                library_version=found.way.version,
                layers=layers,
            )
        names = list(step.buffers)
        if not step.product.has_bias:
            names.insert(2, names[0])  # the kernel has a parameter for it, which it does not read
            offsets.insert(2, 0)
        kernel = self.kernels.add(found.way.request, found.way.compiled)
        return KernelLaunch(
            kernel=kernel, grid=found.way.grid, buffers=buffers.find(names), offsets=offsets, layers=layers
        )

    def _report(self, region: Region, tactic: str, time_us: float | None) -> None:
        layers = list(region.layers)
        made_by = "region" if len(layers) > 1 else ""
        name, op = " + ".join(layers[:4]) or "operand", " ".join(region.ops[:8])
        self.nodes.append(NodeReport(name=name, op=op, layers=layers, made_by=made_by, tactic=tactic, time_us=time_us))


def _sum_rows(region: ProductRegion) -> ElementRegion:
    """A product as sums over rows."""
    plain = region.product.plain
    if plain is None:
        raise refuse("a product has no plain form")
    place = Index.variable("i", plain.rows.num_rows)
    stored = Stored(buffer=region.buffer, dtype=plain.dtype, value=plain.value, place=place)
    return ElementRegion(
        stored=(stored,), count=plain.rows.num_rows, rows=plain.rows, layers=region.layers, ops=region.ops
    )
