"""Near names: what somebody may have meant who misspelt a name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

__all__ = ["find_near", "name_known", "suggest"]

_SHOWN = 20


def find_near(name: str, known: Iterable[str], *, count: int = 3) -> list[str]:
    """The names that are most like one, the nearest first; case does not count.

    >>> find_near("Rellu", ["Relu", "Gelu", "MatMul"])
    ['Relu', 'Gelu']
    >>> find_near("CPU", ["cpu", "onnxruntime"])
    ['cpu']
    """
    import difflib  # only a wrong name needs it

    folded: dict[str, list[str]] = {}
    for each in dict.fromkeys(known):
        folded.setdefault(each.casefold(), []).append(each)
    close = difflib.get_close_matches(name.casefold(), folded, n=count, cutoff=0.6)
    return [each for key in close for each in folded[key]][:count]


def suggest(name: str, known: Iterable[str]) -> str | None:
    """The question to ask of a misspelt name; None where nothing is near.

    >>> suggest("bnech", ["bench", "build"])
    "did you mean 'bench'?"
    """
    near = find_near(name, known)
    return f"did you mean {' or '.join(repr(each) for each in near)}?" if near else None


def name_known(known: Collection[str], *, nothing: str = "none") -> str:
    """All names in a line, the first of them where they are many.

    >>> name_known(["a", "b"])
    'a, b'
    """
    names: Sequence[str] = list(known)
    more = f", ... ({len(names)} in all)" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else nothing
