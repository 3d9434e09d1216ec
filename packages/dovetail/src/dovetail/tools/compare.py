"""Does Dovetail compute what others compute? Two sides, the same samples for both, and every number between them.

The candidate is Dovetail with some providers. The reference is ONNX Runtime over the original file, the evaluator of
the onnx package, or Dovetail's own NumPy kernels with every pass switched off; only the last knows plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import onnx_ir as ir

from dovetail._unset_dims import UnsetDim
from dovetail.build.config import BuilderConfig
from dovetail.inputs.reader import InputReader
from dovetail.inputs.sources import InputSources
from dovetail.inputs.specs import InputSpec, specs_of_manifest
from dovetail.loggers import ILogger
from dovetail.plan.manifest import Manifest
from dovetail.plugin.registry import PluginRegistry
from dovetail.provider.defaults import default_providers
from dovetail.runtime.engine import Engine
from dovetail.tools.compare_samples import RunSample, SampleDifference, by_feeds, compare_samples
from dovetail.tools.differences import TensorDifference, Tolerance
from dovetail.tools.engine_runs import EngineRunner
from dovetail.tools.layers import Divergence, LayerDifference, compare_layers
from dovetail.tools.results.odd_elements import OddElements
from dovetail.tools.sides import DovetailSide, Side, Source, make_reference, read_source

if TYPE_CHECKING:
    from dovetail.api import Bounds, Shape

__all__ = ["CompareResult", "compare_engine", "compare_models", "types_of_layers"]

OpenInputs = Callable[[Sequence[InputSpec]], InputReader]
"""Opens a reader when the inputs of the model are known."""

_RANDOM_OPS: Final = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)


@dataclass(frozen=True, kw_only=True, repr=False)
class CompareResult:
    """What a comparison found."""

    against: str
    """The reference."""
    providers: tuple[str, ...]
    """Of the candidate."""
    inputs: Mapping[str, Any]
    """What both sides were run on."""
    outputs: tuple[TensorDifference, ...]
    layers: tuple[LayerDifference, ...] | None = None
    """Every layer in topological order; None when nobody asked."""
    divergence: Divergence | None = None
    """The first layer whose results are not close, looked at closely."""
    samples: tuple[SampleDifference, ...] = ()
    """Each sample by itself, where there are several; ``outputs`` has the worst of them."""
    odd: tuple[OddElements, ...] | None = None
    """What is not finite in the candidate's outputs; None when nobody asked."""
    notes: tuple[str, ...] = ()
    unset: tuple[UnsetDim, ...] = ()
    """Sizes of inputs that nobody set."""

    @property
    def is_close(self) -> bool:
        """Whether every output is, and no layer that was looked at differs."""
        return all(output.is_close for output in self.outputs) and self.divergence is None

    @property
    def is_valid(self) -> bool:
        """Whether no output was found that is not finite."""
        return not self.odd

    def __repr__(self) -> str:
        verdict = "close" if self.is_close else "not close"
        return f"<CompareResult of {len(self.outputs)} output(s) against {self.against}: {verdict}>"

    def _repr_html_(self) -> str:
        from dovetail.tools.showing import show_comparison

        return show_comparison(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the inputs themselves."""
        return {
            "against": self.against,
            "providers": list(self.providers),
            "is_close": self.is_close,
            "inputs": {name: _shape_of(value) for name, value in self.inputs.items()},
            "outputs": [output.to_dict() for output in self.outputs],
            "layers": None if self.layers is None else [asdict(layer) for layer in self.layers],
            "divergence": None if self.divergence is None else asdict(self.divergence),
            "samples": [sample.to_dict() for sample in self.samples],
            "odd": None if self.odd is None else [{**each.to_dict(), "text": each.describe()} for each in self.odd],
            "notes": list(self.notes),
            "unset": [dim.to_dict() for dim in self.unset],
        }


def _shape_of(value: Any) -> list[Any] | None:
    """The shape of an array, those of a sequence, and how many entries a map has."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [_shape_of(item) for item in value]
    return [len(value)] if isinstance(value, Mapping) else list(value.shape)


def compare_models(
    model: Source,
    *,
    against: str = "onnxruntime",
    providers: Sequence[str] | None = None,
    shapes: Mapping[str, Shape | Bounds] | None = None,
    inputs: Mapping[str, Any] | OpenInputs | None = None,
    seed: int = 0,
    atol: float | None = None,
    rtol: float | None = None,
    layers: bool = False,
    allow_nan: bool = False,
    validate: bool = False,
    config: BuilderConfig | None = None,
    registry: PluginRegistry | None = None,
    override: Collection[str] = (),
    logger: ILogger | None = None,
) -> CompareResult:
    """Run a model through Dovetail and through a reference, and compare the outputs.

    Args:
        model: A path, the bytes of a model, a ModelProto, or an onnx-ir model.
        against: ``onnxruntime``, ``reference`` (of the onnx package) or ``cpu`` (Dovetail's own kernels, no passes).
        providers: Of the candidate, as in ``compile``.
        shapes: For dynamic inputs, as in ``compile``.
        inputs: Values by name, where inputs without one get random numbers; or a function that opens a reader of
            samples for the inputs of the model.
        seed: Decides the random numbers.
        atol: How far off an element may be; by type when neither this nor ``rtol`` is given.
        rtol: How far off in addition, relative to the reference.
        layers: Compare every intermediate tensor, and find the first layer that diverges.
        allow_nan: Let outputs pass that are alike but have no finite element, so that nothing in them was compared.
        validate: Look for NaN and infinity in the outputs of the candidate.
        config: Everything else about the candidate's build.
        registry: Where plugins are looked up.
        override: Operators that are plugins although ONNX has them.
        logger: Where messages go.

    Raises:
        UnsupportedOpError: The reference does not take the model.
        InputError: The configuration is strict, and nobody set the size of a dimension.
    """
    candidate = DovetailSide(
        providers=providers, shapes=shapes, config=config, registry=registry, override=override, logger=logger
    )
    reference, tolerance = make_reference(against, candidate), Tolerance(atol=atol, rtol=rtol, allow_nan=allow_nan)
    with ExitStack() as stack:
        engine = stack.enter_context(candidate.build(model))
        reader = _open_reader(specs_of_manifest(engine.manifest), inputs, shapes or {}, seed)
        theirs = stack.enter_context(reference.open(model))
        compared = compare_samples(
            by_feeds(EngineRunner(engine).run),
            by_feeds(theirs),
            reader,
            tolerance=tolerance,
            logger=logger,
            strict=config is not None and config.strict,
            validate=validate,
        )
    source = model if isinstance(model, ir.Model) else read_source(model)
    result = CompareResult(
        against=against,
        providers=tuple(providers or (config.providers if config is not None else None) or default_providers()),
        notes=tuple(_note_randomness(source)),
        **compared.to_fields(),
    )
    return _add_layers(result, source, candidate, reference, tolerance) if layers else result


def compare_engine(
    engine: Engine,
    reference: RunSample,
    reader: InputReader,
    *,
    against: str,
    tolerance: Tolerance | None = None,
    validate: bool = False,
    strict: bool = False,
    logger: ILogger | None = None,
) -> CompareResult:
    """Run an engine, such as that of a plan, and compare its outputs with those of something else.

    Args:
        engine: The candidate.
        reference: What gives the other outputs: another engine, a session, or a file of saved ones.
        reader: What both are run on.
        against: What the reference is called.
        tolerance: How far off an element may be; without numbers, the types that layers of the engine compute in count.
        validate: Look for NaN and infinity in the outputs of the engine.
        strict: Refuse sizes that nobody set.
        logger: Where messages go.
    """
    tolerance = tolerance or Tolerance()
    tolerance = replace(tolerance, layer_types=tolerance.layer_types | types_of_layers(engine.manifest))
    compared = compare_samples(
        by_feeds(EngineRunner(engine).run),
        reference,
        reader,
        tolerance=tolerance,
        logger=logger,
        strict=strict,
        validate=validate,
    )
    providers = tuple(dict.fromkeys(device.provider for device in engine.manifest.devices))
    notes = tuple(_note_types(tolerance))
    return CompareResult(against=against, providers=providers, notes=notes, **compared.to_fields())


def types_of_layers(manifest: Manifest) -> frozenset[str]:
    """What the layers of a plan compute in, where the build chose it."""
    return frozenset(row.type for row in manifest.precision)


def _note_types(tolerance: Tolerance) -> Iterator[str]:
    if tolerance.layer_share:
        names = ", ".join(sorted(tolerance.layer_types - {"fp32"}))
        share = f"{100 * tolerance.layer_share:g}% of the largest of its output"
        yield f"layers compute in {names}, so an element may be off by {share}; --atol and --rtol set it"


def _open_reader(
    specs: Sequence[InputSpec],
    inputs: Mapping[str, Any] | OpenInputs | None,
    shapes: Mapping[str, Shape | Bounds],
    seed: int,
) -> InputReader:
    if callable(inputs):
        return inputs(specs)
    chosen = {name: _opt_shape(bounds) for name, bounds in shapes.items()}
    return InputReader(specs, InputSources(common=dict(inputs or {})), chosen, seed)


def _add_layers(
    result: CompareResult, model: ir.Model, candidate: Side, reference: Side, tolerance: Tolerance
) -> CompareResult:
    found = compare_layers(
        model,
        result.inputs,
        candidate=candidate,
        reference=reference,
        tolerance=tolerance,
        outputs_differ=any(output.differs for output in result.outputs),
    )
    notes = (*result.notes, *found.notes)
    return replace(result, layers=found.layers, divergence=found.divergence, notes=notes)


def _opt_shape(bounds: Any) -> tuple[int, ...]:
    parts = list(bounds)
    return tuple(parts[1] if parts and not hasattr(parts[0], "__index__") else parts)


def _note_randomness(model: ir.Model) -> list[str]:
    ops = sorted({node.op_type for node in model.graph.all_nodes() if node.op_type in _RANDOM_OPS})
    return [f"the model draws random numbers ({', '.join(ops)}): two runs need not agree"] if ops else []
