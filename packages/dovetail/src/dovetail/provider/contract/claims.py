"""What a provider sees of nodes, and what it answers: which of them it takes, in which form, or why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dovetail.provider.kernels import KernelRegistry

__all__ = ["Claim", "NodeView", "StepKind", "claim_by_registry"]


class StepKind:
    """What a provider makes of the nodes it takes."""

    NODE: Final = "node"
    """One step a node, through ``build_kernel`` and ``load_kernel``."""
    PARTITION: Final = "partition"
    """One step a partition, through ``build_partition`` and ``load_partition``."""


class NodeView(Protocol):
    """What a provider may see of a node when it says what it takes."""

    @property
    def name(self) -> str:
        """The layer it belongs to."""
        ...

    @property
    def op(self) -> str:
        """The operator."""
        ...

    @property
    def domain(self) -> str:
        """Its domain; empty for ONNX."""
        ...

    @property
    def opset(self) -> int:
        """The opset version it is of."""
        ...

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attributes by name; graphs are not among them."""
        ...

    @property
    def input_types(self) -> Sequence[str | None]:
        """NumPy names of input types, or ONNX type strings such as ``seq(tensor(float))``; None for an absent one."""
        ...

    @property
    def output_types(self) -> Sequence[str | None]:
        """The same for outputs."""
        ...

    @property
    def input_shapes(self) -> Sequence[Sequence[int | str] | None]:
        """For each input its dims, numbers or texts that are equal where the dims are; None where unknown.

        The text of a dim that only a run tells begins with a question mark.
        """
        ...

    @property
    def types(self) -> Mapping[str, str]:
        """The types of inputs and outputs by the constraint of the schema they are under."""
        ...

    @property
    def constants(self) -> frozenset[int]:
        """The positions of inputs that are weights."""
        ...

    @property
    def shape_inputs(self) -> frozenset[int]:
        """The positions of inputs that are computed of shapes and weights alone, such as the sizes of a Reshape."""
        ...

    def read_constant(self, position: int) -> Any:
        """The array of an input that is a weight; None of another. A refit may replace it."""
        ...

    @property
    def bodies(self) -> Sequence[Sequence[NodeView]]:
        """The nodes of each body of control flow."""
        ...

    @property
    def is_assigned(self) -> bool:
        """Whether an earlier round gave the node to the provider that is asked; it should take it again."""
        ...


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The provider's answer for one node: taken, or not and why."""

    taken: bool
    reason: str | None = None
    group: str | None = None
    """Taken nodes of one group stay together: the provider gets all of them in one partition, or none."""
    step_kind: str | None = None
    """What the node becomes, a ``StepKind``; None for the provider's own. Nodes of one group have the same."""
    cost_bytes: int = 0
    """Device memory that the node needs, weights included, against the provider's budget."""


def claim_by_registry(kernels: KernelRegistry, node: NodeView) -> Claim:
    """Take a node when the registry has a kernel that knows all of its attributes and types."""
    kernel = kernels.find(node.op, node.domain, node.opset)
    if kernel is None:
        return Claim(taken=False, reason=f"no kernel for {node.domain or 'ai.onnx'}::{node.op} at opset {node.opset}")
    unknown = node.attributes.keys() - kernel.attributes
    if unknown:
        return Claim(taken=False, reason=f"the kernel does not take attribute(s) {', '.join(sorted(unknown))}")
    for constraint, name in node.types.items():
        taken = kernel.types.get(constraint)
        if taken is not None and name not in taken:
            return Claim(taken=False, reason=f"the kernel takes {constraint} of {', '.join(sorted(taken))}, not {name}")
    return Claim(taken=True)
