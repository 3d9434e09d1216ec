"""Matrix products and Einstein sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import LayerType, MatrixOperation
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, choice, text

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["IEinsumLayer", "IMatrixMultiplyLayer", "MatrixLayers"]


class IMatrixMultiplyLayer(ILayer):
    """The product of two stacks of matrices; either may be transposed first, or be a stack of vectors."""

    __slots__ = ()

    _layer_type = LayerType.MATRIX_MULTIPLY
    _kind = "MatrixMultiply"
    _input_names = ("input0", "input1")
    _required_inputs = 2

    op0 = Property(choice(MatrixOperation), "How the first tensor is read.")
    op1 = Property(choice(MatrixOperation), "How the second tensor is read.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], op0: Any, op1: Any) -> None:
        super().__init__(network, tensors)
        self.op0, self.op1 = op0, op1

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        a, b = e.input(0), e.input(1)
        e.require_same_type(a, b)
        first = self._matrix(e, a, self.op0, "input0", axis=-2)
        second = self._matrix(e, b, self.op1, "input1", axis=-1)
        if e.rank(first) != e.rank(second):
            raise e.error(
                "the inputs have different numbers of batch dimensions",
                expected=f"{e.rank(first) - 2}",
                got=f"{e.rank(second) - 2}: {e.describe(a)} and {e.describe(b)}",
                fix="add dimensions of one with add_unsqueeze",
            )
        self._check_inner(e, first, second)
        y = e.op("MatMul", first, second)
        gone = [axis for op, axis in ((self.op0, -2), (self.op1, -1)) if op == MatrixOperation.VECTOR]
        return [e.op("Squeeze", y, e.ints(gone, "vector_axes")) if gone else y]

    def _matrix(self, e: Emitter, value: ir.Value, op: MatrixOperation, name: str, axis: int) -> ir.Value:
        needed = 1 if op == MatrixOperation.VECTOR else 2
        if e.rank(value) < needed:
            raise e.error(
                f"'{name}' has too few dimensions for {op.name}", expected=f"at least {needed}", got=e.describe(value)
            )
        if op == MatrixOperation.VECTOR:
            return e.op("Unsqueeze", value, e.ints([axis], "vector_axis"))
        if op == MatrixOperation.TRANSPOSE:
            rank = e.rank(value)
            return e.transpose(value, [*range(rank - 2), rank - 1, rank - 2])
        return value

    def _check_inner(self, e: Emitter, first: ir.Value, second: ir.Value) -> None:
        inner, other = e.dims(first)[-1], e.dims(second)[-2]
        if inner is not None and other is not None and inner != other:
            raise e.error(
                "the inner dimensions differ",
                expected=inner,
                got=f"{other}: {e.describe(first)} x {e.describe(second)}",
                fix="use MatrixOperation.TRANSPOSE",
            )


class IEinsumLayer(ILayer):
    """A sum of products, said by an equation such as ``ij,jk->ik``."""

    __slots__ = ()

    _layer_type = LayerType.EINSUM
    _kind = "Einsum"

    equation = Property(text, "Which dimensions are multiplied, summed and kept.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], equation: Any) -> None:
        super().__init__(network, tensors)
        self.equation = equation

    @property
    def _max_inputs(self) -> int:
        return len(self._inputs)

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        values = [e.input(index) for index in range(len(self._inputs))]
        e.require_same_type(*values)
        terms = self.equation.replace(" ", "").split("->")[0].split(",")
        if len(terms) != len(values):
            raise e.error(
                "the equation and the inputs do not fit",
                expected=f"{len(terms)} inputs for '{self.equation}'",
                got=len(values),
            )
        for index, (term, value) in enumerate(zip(terms, values, strict=True)):
            if "..." not in term and len(term) != e.rank(value):
                raise e.error(
                    f"the equation does not fit input {index}",
                    expected=f"rank {len(term)} for '{term}'",
                    got=e.describe(value),
                )
        return [e.op("Einsum", *values, equation=self.equation)]


class MatrixLayers(NetworkCore):
    """The methods that add products."""

    __slots__ = ()

    def add_matrix_multiply(
        self, input0: ITensor, op0: MatrixOperation, input1: ITensor, op1: MatrixOperation
    ) -> IMatrixMultiplyLayer:
        """Add a matrix product."""
        tensors = self._check_named("add_matrix_multiply", input0=input0, input1=input1)
        return self._add_layer(IMatrixMultiplyLayer(self, tensors, op0, op1))

    def add_einsum(self, inputs: Sequence[ITensor], equation: str) -> IEinsumLayer:
        """Add a sum of products."""
        tensors = self._check_tensors(inputs, where="add_einsum", argument="inputs", minimum=1)
        return self._add_layer(IEinsumLayer(self, tensors, equation))
