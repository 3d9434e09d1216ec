"""The ONNX parser: a model becomes the layers of a network, or a list of what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import dovetail
from dovetail_tensorrt.trt.answers import DeprecatedContext, Reporter
from dovetail_tensorrt.trt.building.config import IBuilderConfig
from dovetail_tensorrt.trt.building.network import INetworkDefinition
from dovetail_tensorrt.trt.enums import OnnxParserFlag
from dovetail_tensorrt.trt.parsing.errors import ErrorCode, ParserError, describe_errors, refuse_accelerator
from dovetail_tensorrt.trt.parsing.models import ParsedModel, read_contents

__all__ = ["OnnxParser", "get_nv_onnx_parser_version"]

_VERSION = (11, 1, 0)


def get_nv_onnx_parser_version() -> int:
    """The version of the parser's API as a number."""
    major, minor, patch = _VERSION
    return major * 10000 + minor * 100 + patch


class OnnxParser(DeprecatedContext):
    """Fills a network from ONNX models.

    Args:
        network: An empty network.
        logger: Where messages go.
    """

    __slots__ = (
        "_config",
        "_errors",
        "_model",
        "_network",
        "_reporter",
        "_subgraphs",
        "flags",
    )

    def __init__(self, network: INetworkDefinition, logger: dovetail.ILogger) -> None:
        self._network = network
        self._reporter = Reporter(logger)
        self._errors: list[ParserError] = []
        self._subgraphs: list[list[int]] = []
        self._model: ParsedModel | None = None
        self._config: IBuilderConfig | None = None
        self.flags = 1 << OnnxParserFlag.NATIVE_INSTANCENORM

    def __del__(self) -> None:
        """Nothing: the contract has the name."""

    # parsing

    def parse(self, model: Any, path: str | None = None) -> bool:
        """Add a model, given as bytes; False when there are errors.

        Args:
            model: The bytes.
            path: Where it lies, for weights in files beside it.
        """
        return self._read("parse", lambda: ParsedModel(bytes(model), path)) and self._add("parse")

    def parse_from_file(self, model: str) -> bool:
        """Add the model of a file; False when there are errors."""
        return self._read("parse_from_file", lambda: ParsedModel.from_file(model)) and self._add("parse_from_file")

    def load_model_proto(self, model: Any, path: str | None = None) -> bool:
        """Read a model, given as bytes, to which weights are given before ``parse_model_proto``."""
        return self._read("load_model_proto", lambda: ParsedModel(bytes(model), path))

    def load_initializer(self, name: str, data: Any, size: int) -> bool:
        """Set the contents of a weight of the model that was read."""
        try:
            contents = read_contents(data, size)
        except ValueError as error:
            self._note("load_initializer", ErrorCode.INVALID_VALUE, f"initializer '{name}': {error}")
            return False
        if self._model is not None and self._model.set_initializer(name, contents):
            return True
        self._note("load_initializer", ErrorCode.INVALID_VALUE, f"the model has no initializer '{name}'")
        return False

    def parse_model_proto(self) -> bool:
        """Add the model that was read."""
        if self._model is None:
            self._note("parse_model_proto", ErrorCode.INVALID_VALUE, "no model was read; call load_model_proto")
            return False
        return self._add("parse_model_proto")

    def set_builder_config(self, builder_config: IBuilderConfig) -> bool:
        """Say for which build the model is parsed: its providers decide which operators are taken."""
        self._config = builder_config
        return True

    def _read(self, func: str, read: Callable[[], ParsedModel]) -> bool:
        try:
            self._model = read()
        except OSError as error:
            self._note(func, ErrorCode.MODEL_DESERIALIZE_FAILED, f"the file cannot be read: {error}")
            return False
        except ValueError as error:
            self._note(func, ErrorCode.MODEL_DESERIALIZE_FAILED, str(error))
            return False
        return True

    def _add(self, func: str) -> bool:
        return not self._try(self._network, func)

    def _try(self, network: dovetail.Network, func: str) -> list[ParserError]:
        """Add the model that was read to a network; what is wrong comes back, and is kept and logged."""
        model = self._require_model()
        if self.get_flag(OnnxParserFlag.REPORT_CAPABILITY_DLA):
            found = refuse_accelerator(func, model)
        else:
            found = self._import(network, func, model)
        for each in found:
            self._keep(each)
        return found

    def _import(self, network: dovetail.Network, func: str, model: ParsedModel) -> list[ParserError]:
        try:
            network.add_model(
                model.source, logger=self._reporter.logger, override=self._overridden(model), providers=self._providers
            )
        except dovetail.DovetailError as error:
            return describe_errors(error, func, model.indices)
        return []

    def _require_model(self) -> ParsedModel:
        if self._model is None:
            raise dovetail.UsageError("no model was read", where="OnnxParser")
        return self._model

    @property
    def _providers(self) -> Sequence[str] | None:
        return None if self._config is None else self._config.providers

    def _overridden(self, model: ParsedModel) -> list[str]:
        """The operators that plugins take from ONNX, when the flag says so."""
        if not self.get_flag(OnnxParserFlag.ENABLE_PLUGIN_OVERRIDE):
            return []
        registry = self._network.registry
        return sorted({creator.name for creator in registry.all_creators_recursive} & model.op_types)

    # support

    def supports_operator(self, op_name: str) -> bool:
        """Whether an operator of ONNX or of a registered plugin is taken."""
        import onnx

        known = {creator.name for creator in self._network.registry.all_creators_recursive}
        return op_name in known or onnx.defs.has(op_name)

    def supports_model_v2(self, model: Any, path: str | None = None) -> bool:
        """Whether a model could be parsed whole; else the parts between the nodes that could not are listed."""
        self._subgraphs = []
        if not self._read("supports_model_v2", lambda: ParsedModel(bytes(model), path)):
            return False
        scratch = dovetail.Network(registry=self._network.registry, has_contract_io=True)
        errors = self._try(scratch, "supports_model_v2")
        wrong = {error.node() for error in errors}
        count = 0 if -1 in wrong else len(self._require_model().indices)
        parts = groupby(range(count), key=lambda index: index not in wrong)
        self._subgraphs = [list(nodes) for is_taken, nodes in parts if is_taken]
        return not errors

    def supports_model(self, model: Any, path: str | None = None) -> tuple[bool, list[tuple[list[int], bool]]]:
        """Whether a model could be parsed whole, and its parts; version 10's form."""
        return self.supports_model_v2(model, path), [(nodes, True) for nodes in self._subgraphs]

    @property
    def num_subgraphs(self) -> int:
        """How many parts ``supports_model_v2`` found; none where an error is about no node."""
        return len(self._subgraphs)

    def is_subgraph_supported(self, index: int) -> bool:
        """Whether a part could be parsed, which all that are listed can."""
        return bool(self._subgraphs[index])

    def get_subgraph_nodes(self, index: int) -> list[int]:
        """The nodes of a part, by their index in the model."""
        return list(self._subgraphs[index])

    # errors and flags

    @property
    def num_errors(self) -> int:
        """How many errors were found."""
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        """An error by number."""
        return self._errors[index]

    def clear_errors(self) -> None:
        """Forget all errors."""
        self._errors.clear()

    def _note(self, func: str, code: ErrorCode, desc: str) -> None:
        self._keep(ParserError(code=code, desc=desc, func=func))

    def _keep(self, error: ParserError) -> None:
        self._errors.append(error)
        self._reporter.logger.log(dovetail.ILogger.ERROR, str(error))

    def set_flag(self, flag: OnnxParserFlag) -> None:
        """Switch a flag on."""
        self.flags |= 1 << OnnxParserFlag(flag)

    def clear_flag(self, flag: OnnxParserFlag) -> None:
        """Switch a flag off."""
        self.flags &= ~(1 << OnnxParserFlag(flag))

    def get_flag(self, flag: OnnxParserFlag) -> bool:
        """Whether a flag is on."""
        return bool(self.flags >> OnnxParserFlag(flag) & 1)

    # what was parsed

    def get_layer_output_tensor(self, name: str, i: int) -> dovetail.ITensor | None:
        """An output of a layer by the layer's name; None when there is none."""
        layer = next((layer for layer in self._network if layer.name == name), None)
        return layer.get_output(i) if layer is not None and 0 <= i < layer.num_outputs else None

    def get_used_vc_plugin_libraries(self) -> list[str]:
        """The plugin libraries that a version-compatible plan would carry: none."""
        return []
