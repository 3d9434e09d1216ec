"""Settings of contexts and of serialization, which are kept and answered."""

from __future__ import annotations

from dovetail import StrictAttributes
from dovetail_tensorrt.trt.enums import ExecutionContextAllocationStrategy, SerializationFlag

__all__ = ["IRuntimeConfig", "ISerializationConfig"]


class IRuntimeConfig(StrictAttributes):
    """Settings of a context; made by ``ICudaEngine.create_runtime_config``."""

    __slots__ = ("_strategy",)

    def __init__(self) -> None:
        self._strategy = ExecutionContextAllocationStrategy.STATIC

    def set_execution_context_allocation_strategy(self, strategy: ExecutionContextAllocationStrategy) -> None:
        """Say who provides the memory."""
        self._strategy = ExecutionContextAllocationStrategy(strategy)

    def get_execution_context_allocation_strategy(self) -> ExecutionContextAllocationStrategy:
        """Who provides the memory."""
        return self._strategy


class ISerializationConfig(StrictAttributes):
    """Settings of a serialized engine; made by ``ICudaEngine.create_serialization_config``."""

    __slots__ = ("flags",)

    def __init__(self) -> None:
        self.flags = 0

    def set_flag(self, flag: SerializationFlag) -> bool:
        """Switch a flag on."""
        self.flags |= 1 << SerializationFlag(flag)
        return True

    def clear_flag(self, flag: SerializationFlag) -> bool:
        """Switch a flag off."""
        self.flags &= ~(1 << SerializationFlag(flag))
        return True

    def get_flag(self, flag: SerializationFlag) -> bool:
        """Whether a flag is on."""
        return bool(self.flags >> SerializationFlag(flag) & 1)

    @property
    def excludes_weights(self) -> bool:
        """Whether weights that a refit can give back are left out."""
        return self.get_flag(SerializationFlag.EXCLUDE_WEIGHTS)
