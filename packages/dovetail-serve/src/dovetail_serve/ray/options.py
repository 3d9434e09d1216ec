"""How many replicas there are, and what each of them takes."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.errors import UsageError

__all__ = ["RayOptions", "check_ray_options"]


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """Where replicas run and when there are more of them."""

    replicas: int = 1
    """How many there are at least."""
    max_replicas: int | None = None
    """How many there are at most; as many as at least where it is None, so that nothing is scaled."""
    num_cpus: float = 1.0
    num_gpus: float = 0.0
    """What each of them takes of a node; Ray sets CUDA_VISIBLE_DEVICES accordingly."""
    queue_per_replica: float = 8.0
    """How many requests may wait for each replica before there is another one."""
    quiet_s: float = 60.0
    """How long nothing may wait before there is one replica less."""
    poll_s: float = 1.0
    """How often replicas are asked how they are, and the repository is looked at."""
    name: str = "dovetail"
    """What actors are called in Ray."""
    plugins: tuple[str, ...] = ()
    """Plugin libraries, which Ray carries to the nodes."""

    @property
    def most_replicas(self) -> int:
        """How many there are at most."""
        return self.replicas if self.max_replicas is None else self.max_replicas


def check_ray_options(options: RayOptions) -> None:
    """Refuse what can never be right.

    Raises:
        UsageError: A number is out of range.
    """
    if options.replicas < 1:
        raise UsageError("there must be at least one replica", where="replicas", expected=1, got=options.replicas)
    if options.most_replicas < options.replicas:
        expected = f"at least {options.replicas}, the number of replicas"
        raise UsageError("there would be fewer replicas", where="max_replicas", expected=expected)
    for name in ("num_cpus", "num_gpus"):
        if getattr(options, name) < 0:
            raise UsageError("it cannot be negative", where=name, got=getattr(options, name))
    for name in ("queue_per_replica", "quiet_s", "poll_s"):
        if not getattr(options, name) > 0:
            raise UsageError("it must be above 0", where=name, got=getattr(options, name))
