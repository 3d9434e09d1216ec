from collections.abc import Callable, Mapping, Sequence

from onnxruntime_ep_dovetail.library.contract import CallFrame

KERNEL_STATE_OFFSET: int
"""How many bytes after the start of an OrtKernelImpl the address of its state lies."""

def attach(api_address: int, slots: Mapping[str, int], /) -> None:
    """Take the functions of one OrtApi table; slots gives the place of each of API_FUNCTIONS."""

def create_state(
    new_frame: Callable[[], CallFrame],
    num_inputs: int,
    num_outputs: int,
    input_types: Sequence[int],
    output_types: Sequence[int],
    api_address: int | None = None,
    has_stream: bool = False,
) -> int:
    """Make the state of one partition and return its address; without a table it uses the one attached last.

    With ``has_stream`` the addresses of a run end with the handle of the stream that ONNX Runtime runs it on.
    """

def release_state(address: int, /) -> None:
    """Free a state and its frames. No run of it may be under way."""

def compute_address() -> int:
    """Return the address of the function for OrtNodeComputeInfo::Compute."""

def kernel_compute_address() -> int:
    """Return the address of the function for OrtKernelImpl::Compute."""
