"""Models as parsers take them: read from bytes or files, with a name for each node and weights that scripts bring."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Final

import dovetail
from dovetail.files import read_bytes

__all__ = ["MAX_MODEL_BYTES", "ParsedModel", "read_contents"]

MAX_MODEL_BYTES: Final = 1 << 31
"""The largest message that protobuf reads; larger models have their weights in other files."""
_CONTENTS: Final = (
    "external_data",
    *(f"{kind}_data" for kind in ("float", "int32", "string", "int64", "double", "uint64")),
)
"""Fields of ``TensorProto`` that would contradict ``raw_data``."""


class ParsedModel:
    """A model that was read and not looked at further.

    Args:
        data: The bytes of a model.
        path: Where the model lies, for weights in files beside it.

    Raises:
        ValueError: The bytes are no ONNX model.
    """

    def __init__(self, data: bytes, path: str | None = None) -> None:
        import onnx

        try:
            self.proto = onnx.load_model_from_string(data)
        except Exception as error:  # the parser of messages has an error class of its own
            raise ValueError(f"the bytes are no ONNX model: {error}") from error
        if not self.proto.HasField("graph"):
            raise ValueError("the bytes are no ONNX model: there is no graph in them")
        self._path = path
        self._name_nodes()

    @staticmethod
    def from_file(path: str) -> ParsedModel:
        """The model of a file."""
        return ParsedModel(read_bytes(path, MAX_MODEL_BYTES, follow=True), path)

    def _name_nodes(self) -> None:
        """Give nodes without a name one by what they make, as others who import such models do."""
        for index, node in enumerate(self.proto.graph.node):
            if not node.name:
                node.name = f"node_of_{next(filter(None, node.output), index)}"

    @property
    def indices(self) -> dict[str, int]:
        """Name of a node -> its index."""
        return {node.name: index for index, node in enumerate(self.proto.graph.node)}

    @property
    def op_types(self) -> set[str]:
        """All operators of the outermost graph."""
        return {node.op_type for node in self.proto.graph.node}

    def set_initializer(self, name: str, data: bytes) -> bool:
        """Give the contents of a weight; False when there is none of the name."""
        import onnx

        for tensor in self.proto.graph.initializer:
            if tensor.name == name:
                for field in _CONTENTS:
                    tensor.ClearField(field)
                tensor.data_location = onnx.TensorProto.DEFAULT
                tensor.raw_data = data
                return True
        return False

    @property
    def source(self) -> Any:
        """What the engine imports: the message, or the path where weights lie in other files."""
        import onnx

        tensors = self.proto.graph.initializer
        is_external = any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in tensors)
        if not is_external:
            return self.proto
        if self._path is None:
            raise dovetail.ModelError(
                "weights lie in other files, and it is not known where",
                where="model",
                fix="parse with parse_from_file, or give the path of the model",
            )
        return self._path

    def weights(self) -> dict[str, Any]:
        """The arrays of all weights, by name."""
        import onnx
        from onnx import numpy_helper

        base = str(Path(self._path).parent) if self._path is not None else ""
        found = {}
        for tensor in self.proto.graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL and self._path is None:
                continue
            found[tensor.name] = numpy_helper.to_array(tensor, base_dir=base)
        return found


def read_contents(data: Any, size: int) -> bytes:
    """Return the contents of a weight, given as a buffer or as an address.

    Raises:
        ValueError: The buffer is smaller than the size.
    """
    if isinstance(data, int):
        return ctypes.string_at(data, size)
    held = memoryview(data)
    if held.nbytes < size:
        raise ValueError(f"the buffer holds {held.nbytes} bytes, fewer than the size of {size}")
    return held.tobytes()[:size]
