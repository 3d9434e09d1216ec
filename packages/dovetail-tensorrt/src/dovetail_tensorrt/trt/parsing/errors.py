"""What a parser says of a model that it cannot take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import dovetail
from dovetail import ContractEnum, StrictAttributes
from dovetail_tensorrt.trt.parsing.models import ParsedModel

__all__ = ["ErrorCode", "ParserError", "describe_errors", "refuse_accelerator"]

_NODE: Final = re.compile(r"node '(?P<name>[^']*)' \((?P<op>[^,]*), opset")
"""How the engine's messages name a node."""


class ErrorCode(ContractEnum):
    """What kind of error it is."""

    SUCCESS = 0
    INTERNAL_ERROR = 1
    MEM_ALLOC_FAILED = 2
    MODEL_DESERIALIZE_FAILED = 3
    INVALID_VALUE = 4
    INVALID_GRAPH = 5
    INVALID_NODE = 6
    UNSUPPORTED_GRAPH = 7
    UNSUPPORTED_NODE = 8
    UNSUPPORTED_NODE_ATTR = 9
    UNSUPPORTED_NODE_INPUT = 10
    UNSUPPORTED_NODE_DATATYPE = 11
    UNSUPPORTED_NODE_DYNAMIC = 12
    UNSUPPORTED_NODE_SHAPE = 13
    REFIT_FAILED = 14

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<ErrorCode.{self.name}: {self.value}>"


@dataclass(frozen=True, kw_only=True)
class _Facts:
    code: ErrorCode
    desc: str
    func: str
    node: int = -1
    name: str = ""
    operator: str = ""


class ParserError(StrictAttributes):
    """One error; made by the parsers."""

    __slots__ = ("_facts",)

    def __init__(self, **facts: object) -> None:
        self._facts = _Facts(**facts)  # type: ignore[arg-type]

    def code(self) -> ErrorCode:
        """What kind it is."""
        return self._facts.code

    def desc(self) -> str:
        """What is wrong, in words."""
        return self._facts.desc

    def file(self) -> str:
        """The source file that found it."""
        return __file__

    def line(self) -> int:
        """The line that found it; 0, as it is found in several."""
        return 0

    def func(self) -> str:
        """The function that found it."""
        return self._facts.func

    def node(self) -> int:
        """The index of the node in the model; -1 when it is about none."""
        return self._facts.node

    def node_name(self) -> str:
        """The name of the node."""
        return self._facts.name

    def node_operator(self) -> str:
        """The operator of the node."""
        return self._facts.operator

    def local_function_stack(self) -> list[str]:
        """The model functions that the node lies in, which its description names."""
        return []

    def local_function_stack_size(self) -> int:
        """How many these are."""
        return 0

    def __str__(self) -> str:
        facts = self._facts
        place = f"In node {facts.node} with name: {facts.name} and operator: {facts.operator} " if facts.name else ""
        return f"{place}({facts.func}): {facts.code.name}: {facts.desc}"

    __repr__ = __str__


def describe_errors(error: dovetail.DovetailError, func: str, indices: Mapping[str, int]) -> list[ParserError]:
    """The errors that one of the engine's gathers.

    Args:
        error: What an import raised.
        func: The method that was called.
        indices: Name of a node -> its index in the model.
    """
    return [_describe(part, func, indices) for part in error.parts or (error,)]


def refuse_accelerator(func: str, model: ParsedModel) -> list[ParserError]:
    """The errors of a model whose nodes must all run on a DLA: there is none."""
    return [
        ParserError(
            code=ErrorCode.UNSUPPORTED_NODE,
            desc=f"DLA validation failed for layer: {node.name}: there is no DLA here; clear REPORT_CAPABILITY_DLA",
            func=func,
            node=index,
            name=node.name,
            operator=node.op_type,
        )
        for index, node in enumerate(model.proto.graph.node)
    ]


def _describe(error: dovetail.DovetailError, func: str, indices: Mapping[str, int]) -> ParserError:
    found = _NODE.search(error.where or "")
    name, operator = (found["name"], found["op"].rpartition("::")[2]) if found else ("", "")
    return ParserError(
        code=_code_of(error, is_node=found is not None),
        desc=str(error),
        func=func,
        node=indices.get(name, -1),
        name=name,
        operator=operator,
    )


def _code_of(error: dovetail.DovetailError, *, is_node: bool) -> ErrorCode:
    if isinstance(error, dovetail.UnsupportedOpError | dovetail.PluginError):
        return ErrorCode.UNSUPPORTED_NODE if is_node else ErrorCode.UNSUPPORTED_GRAPH
    if isinstance(error, dovetail.ResourceError):
        return ErrorCode.MEM_ALLOC_FAILED
    if isinstance(error, dovetail.ModelError):
        return ErrorCode.INVALID_NODE if is_node else ErrorCode.INVALID_GRAPH
    return ErrorCode.INVALID_VALUE if isinstance(error, dovetail.UsageError) else ErrorCode.INTERNAL_ERROR
