from collections.abc import Callable, Mapping, Sequence

from onnxruntime_ep_dovetail.library.contract import CallFrame

GATE_OFFSET: int
"""Distance in words from a slot of an object to the function that the gate of the slot calls."""
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
    ep_address: int = 0,
) -> int:
    """Make the state of one partition and return its address; without a table it uses the one attached last.

    With ``has_stream`` the addresses of a run end with the handle of the stream that ONNX Runtime runs it on.
    ``ep_address`` is the OrtEp whose runs it is in.
    """

def release_state(address: int, /) -> None:
    """Free a state and its frames. No run of it may be under way."""

def compute_address() -> int:
    """Return the address of the function for OrtNodeComputeInfo::Compute."""

def kernel_compute_address() -> int:
    """Return the address of the function for OrtKernelImpl::Compute."""

def run_start_address() -> int:
    """Return the address of the function for OrtEp::OnRunStart."""

def run_end_address() -> int:
    """Return the address of the function for OrtEp::OnRunEnd."""

def note_run_start(ep_address: int, options_address: int, /) -> None:
    """Do what OnRunStart does, for an OrtEp that has one of its own."""

def note_run_end(ep_address: int, /) -> None:
    """Do what OnRunEnd does, for an OrtEp that has one of its own."""

def check_run(ep_address: int, offset: int, error: type[Exception], /) -> None:
    """Raise an error where the run of an OrtEp on this thread is to end, which stands in OrtRunOptions at an offset."""

def set_carrier(make: Callable[[BaseException], type[BaseException]], /) -> None:
    """Say what makes, of an exception, a class that gives the exception when it is called."""

def start_closing(max_hold_ms: int, /) -> None:
    """Hold the runs of other threads where they begin and end, until a limit unless the interpreter finalizes."""

def running_threads() -> list[int]:
    """Return the identifiers of the threads that are between the start and the end of a run."""

def gate_address(index: int, num_arguments: int, /) -> int:
    """Return the address of the gate for a slot, a function that calls the one GATE_OFFSET words after the slot."""

def thread_number() -> int:
    """Return the number of this thread, which no other thread of the process has or will have."""

def is_thread_alive(number: int, /) -> bool:
    """Return whether the thread of a number has not ended."""
