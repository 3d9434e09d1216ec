"""What an engine is run on from the command line: arrays from files, random numbers for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli.shapes import ShapeBounds, format_shape
from dovetail.errors import InputError, UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dovetail.plan.manifest import Manifest, TensorRecord
    from dovetail.runtime.context import ExecutionContext
    from dovetail.runtime.engine import Engine

    Array = npt.NDArray[Any]

__all__ = ["make_context", "make_inputs"]


def make_context(engine: Engine, inputs: Mapping[str, Array]) -> ExecutionContext:
    """A context on the first profile that the shapes of the inputs fit, so that nobody has to count profiles."""
    context = engine.create_execution_context()
    for index, profile in enumerate(engine.manifest.profiles):
        bounds = ((inputs[name].shape, shapes) for name, shapes in profile.shapes.items())
        if all(_is_within(shape, low, high) for shape, (low, _, high) in bounds):
            context.set_optimization_profile_async(index)
            break
    return context


def _is_within(shape: Sequence[int], low: Sequence[int], high: Sequence[int]) -> bool:
    return len(shape) == len(low) and all(a <= n <= b for a, n, b in zip(low, shape, high, strict=True))


def make_inputs(
    engine: Engine, *, files: Sequence[str], shapes: Mapping[str, ShapeBounds], seed: int
) -> dict[str, Array]:
    """One array for each input of an engine.

    Args:
        engine: What will run.
        files: ``name:file.npy``, or just a file when there is one input.
        shapes: Shapes by name; the tuned one is taken.
        seed: Decides the random numbers.

    Raises:
        UsageError: A name is not an input.
        InputError: A file cannot be read.
    """
    import numpy as np

    tensors = {tensor.name: tensor for tensor in engine.manifest.inputs}
    given = {name: _load(path, tensors[name]) for name, path in _match_files(files, list(tensors)).items()}
    _require_known(shapes, tensors)
    sizes = _SymbolSizes(engine.manifest)
    for name, array in given.items():
        sizes.learn(tensors[name], array.shape)
    for name, bounds in shapes.items():
        sizes.learn(tensors[name], bounds.opt)
    rng = np.random.default_rng(seed)
    inputs = {}
    for name, tensor in tensors.items():
        shape = shapes[name].opt if name in shapes else sizes.shape_of(tensor)
        inputs[name] = given[name] if name in given else _random(tensor, shape, engine.manifest, rng)
    return inputs


def _require_known(shapes: Mapping[str, ShapeBounds], tensors: Mapping[str, TensorRecord]) -> None:
    for name in shapes:
        if name not in tensors:
            raise UsageError(
                f"there is no input '{name}'", where="--shapes", expected=", ".join(tensors) or "no inputs"
            )


# files


def _match_files(texts: Sequence[str], names: Sequence[str]) -> dict[str, Path]:
    """The file of each input that has one; the names are known, so colons in them and in paths do no harm."""
    files: dict[str, Path] = {}
    for text in texts:
        name = max((n for n in names if text.startswith(f"{n}:")), key=len, default=None)
        if name is None and len(names) == 1 and Path(text).is_file():
            name, path = names[0], text
        elif name is None:
            raise UsageError(
                "this names no input",
                where=f"--inputs {text!r}",
                expected=f"name:file.npy for one of {', '.join(names)}",
            )
        else:
            path = text[len(name) + 1 :]
        if name in files:
            raise UsageError(f"input '{name}' has two files", where=f"--inputs {text!r}")
        files[name] = Path(path)
    return files


def _load(path: Path, tensor: TensorRecord) -> Array:
    """An array from a file; what it claims is checked against the size of the file before memory is taken."""
    import numpy as np

    from dovetail.runtime.arrays import as_input

    where = f"'{path}', for input '{tensor.name}'"
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror or error}", where=where) from error
    except (ValueError, EOFError, SyntaxError, TypeError) as error:
        raise InputError("this is not a .npy file", where=where, fix="write it with numpy.save(file, array)") from error
    if not isinstance(loaded, np.ndarray):
        loaded.close()
        raise InputError("this holds several arrays", where=where, expected=".npy, one array a file", got=".npz")
    array, wanted = np.array(loaded), np.dtype(tensor.dtype)
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)  # NumPy stores the types it does not know, such as bfloat16, as bytes without a name
    return as_input(array, tensor, wanted)


# random numbers


class _SymbolSizes:
    """The sizes of dimensions that have a name: from what is given, else from the profile, else 1."""

    def __init__(self, manifest: Manifest) -> None:
        self._profile = {} if not manifest.profiles else manifest.profiles[0].shapes
        self._sizes: dict[str, int] = {}

    def learn(self, tensor: TensorRecord, shape: Sequence[int]) -> None:
        if len(shape) != len(tensor.dims):
            raise InputError(
                "wrong number of dimensions",
                where=f"input '{tensor.name}'",
                expected=len(tensor.dims),
                got=format_shape(shape),
            )
        for dim, size in zip(tensor.dims, shape, strict=True):
            if isinstance(dim, str):
                self._sizes.setdefault(dim, size)

    def shape_of(self, tensor: TensorRecord) -> tuple[int, ...]:
        bounds = self._profile.get(tensor.name)
        return tuple(
            self._size(dim, None if bounds is None else bounds[1][axis]) for axis, dim in enumerate(tensor.dims)
        )

    def _size(self, dim: Any, tuned: int | None) -> int:
        if isinstance(dim, int):
            return dim
        known = self._sizes.get(dim) if isinstance(dim, str) else None
        return known if known is not None else 1 if tuned is None else tuned


def _random(tensor: TensorRecord, shape: Sequence[int], manifest: Manifest, rng: np.random.Generator) -> Array:
    import numpy as np

    dtype = np.dtype(tensor.dtype)
    if tensor.is_shape:
        return _shape_values(tensor, shape, manifest)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        # Integers are often indices: zero and one are in range of nearly everything.
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32).astype(dtype)


def _shape_values(tensor: TensorRecord, shape: Sequence[int], manifest: Manifest) -> Array:
    """Contents that shapes depend on are not left to chance: what the profile is tuned for, or ones."""
    import numpy as np

    profile = manifest.profiles[0].values if manifest.profiles else {}
    values = profile[tensor.name][1] if tensor.name in profile else 1
    return np.full(shape, np.reshape(values, shape) if tensor.name in profile else values, np.dtype(tensor.dtype))
