"""ONNX models into networks: read, checked as a whole, functions expanded, unknown operators made plugins, typed.

A model is rejected with one error that lists everything found wrong. No code from a file is run, and no file outside
the model's folder is read.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx
import onnx_ir as ir

from dovetail.decoding import judging
from dovetail.errors import ModelError
from dovetail.growth import DEFAULT_GROWTH, GrowthLimits
from dovetail.loggers import ILogger
from dovetail.network.importer.kernels import FindKernel, find_kernel_in
from dovetail.network.importer.plugins import check_override
from dovetail.network.importer.prepare import Preparation
from dovetail.network.importer.problems import Problems
from dovetail.network.importer.read import Source, loose_model, read_model
from dovetail.plugin.registry import PluginRegistry, get_plugin_registry

__all__ = ["import_model"]


def import_model(
    source: Source,
    *,
    registry: PluginRegistry | None = None,
    logger: ILogger | None = None,
    override: Collection[str] = (),
    kernels: FindKernel | None = None,
    limits: GrowthLimits = DEFAULT_GROWTH,
    is_part: bool = False,
) -> ir.Model:
    """Read a model and make it ready to build.

    Initializers keep their names, which is how weights are named for refitting. An input that has an initializer is a
    weight. Dimension names become plain identifiers.

    Args:
        source: A path, the bytes of a file, or a model in memory, which is left as it is.
        registry: Where plugins for unknown operators are looked up; the global registry without one.
        logger: Where warnings go; the registry's logger without one.
        override: Operators that are plugins although ONNX or a model function has them.
        kernels: Says which operators have a kernel; without it, those of the ``cpu`` provider have. The others are
            expanded into what has one, converted to an opset where they have one, or made plugins.
        limits: How many nodes the model may have when functions and operators are expanded.
        is_part: Whether the model is a part of the one that ``override`` was written for, and may lack operators of it.

    Raises:
        UsageError: No node has an operator of ``override``.
        ModelError: The model is wrong; ``UnsupportedOpError`` when it is right but has what is not supported.
        PluginError: A plugin could not be made.
    """
    problems = Problems()
    registry = registry or get_plugin_registry()
    logger = logger or registry.logger
    find = kernels or find_kernel_in()

    def prepare(model: ir.Model) -> Preparation:
        return Preparation(model, registry, logger, override, find, problems, limits)

    def look_at_nodes(proto: onnx.ModelProto) -> None:
        prepare(loose_model(proto)).check()

    with judging(lambda reason: ModelError(f"the model cannot be used: {reason}", where="model")):
        model = read_model(source, problems, look_at_nodes)
        if not is_part:
            check_override(model, override)
        return prepare(model).run()
