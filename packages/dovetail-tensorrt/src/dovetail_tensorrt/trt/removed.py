"""Names that version 10 removed: scripts of version 8 are told what took their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from dovetail import StrictAttributes

__all__ = ["RemovedNames"]

_REPLACED: Final = {
    "add_convolution": "add_convolution_nd",
    "add_deconvolution": "add_deconvolution_nd",
    "add_fully_connected": "add_matrix_multiply, with add_elementwise for the bias",
    "add_padding": "add_padding_nd",
    "add_pooling": "add_pooling_nd",
    "add_rnn_v2": "add_loop",
    "all_inputs_specified": "all_binding_shapes_specified",
    "binding_is_input": "get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT",
    "build_cuda_engine": "build_serialized_network and Runtime.deserialize_cuda_engine",
    "build_engine": "build_serialized_network and Runtime.deserialize_cuda_engine",
    "execute": "execute_v2",
    "execute_async": "set_tensor_address and execute_async_v3",
    "execute_async_v2": "set_tensor_address and execute_async_v3",
    "fp16_mode": "set_flag(tensorrt.BuilderFlag.FP16) of the configuration",
    "get_binding_dtype": "get_tensor_dtype(name)",
    "get_binding_format": "get_tensor_format(name)",
    "get_binding_index": "names of tensors, get_tensor_name(index)",
    "get_binding_name": "get_tensor_name(index)",
    "get_binding_shape": "get_tensor_shape(name)",
    "get_location": "get_tensor_location(name)",
    "get_profile_shape": "get_tensor_profile_shape(name, profile)",
    "get_profile_shape_input": "get_tensor_profile_values(name, profile)",
    "get_shape": "get_tensor_shape(name)",
    "int8_mode": "set_flag(tensorrt.BuilderFlag.INT8) of the configuration",
    "is_execution_binding": "get_tensor_location(name)",
    "is_shape_binding": "is_shape_inference_io(name)",
    "max_batch_size": "the first dimension of the inputs",
    "max_workspace_size": "set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, bytes)",
    "num_bindings": "num_io_tensors",
    "set_binding_shape": "set_input_shape(name, shape)",
    "set_shape_input": "set_tensor_address(name, address), with the address of an array on the host",
    "strict_type_constraints": "set_flag(tensorrt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS) of the configuration",
}
"""What was removed -> what a script uses instead."""


class RemovedNames(StrictAttributes):
    """Says of a removed name what to use; ``hasattr`` is False for it, as scripts that look for versions expect."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker would take every name for one that is there

        def __getattr__(self, name: str) -> NoReturn:
            self._refuse(name)

        def __setattr__(self, name: str, value: object) -> None:
            if name in _REPLACED and not hasattr(type(self), name):
                self._refuse(name)
            super().__setattr__(name, value)

        def _refuse(self, name: str) -> NoReturn:
            text = f"'{type(self).__name__}' object has no attribute '{name}'"
            if name in _REPLACED:
                text += f": it is of version 8, and version 10 removed it\n  fix: use {_REPLACED[name]}"
            raise AttributeError(text, name=name, obj=self)
