from collections.abc import Callable, Mapping, Sequence

from onnxruntime_ep_dovetail.library.contract import Frame

KERNEL_STATE_OFFSET: int

def attach(api_address: int, slots: Mapping[str, int], /) -> None: ...
def create_state(
    new_frame: Callable[[], Frame],
    num_inputs: int,
    num_outputs: int,
    input_types: Sequence[int],
    output_types: Sequence[int],
    api_address: int | None = None,
    has_stream: bool = False,
) -> int: ...
def release_state(address: int, /) -> None: ...
def compute_address() -> int: ...
def kernel_compute_address() -> int: ...
