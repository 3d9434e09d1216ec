"""Finds models whose files have changed since they were last looked at, and have come to rest."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail_serve.repository.scan import ModelFiles, Stamp

__all__ = ["RepositoryWatch"]

_Seen = tuple[Stamp, tuple[tuple[str, Stamp], ...], str]


class RepositoryWatch:
    """Remembers what was there; a change counts when two looks in a row see the same."""

    def __init__(self) -> None:
        self._known: dict[str, _Seen] = {}
        """What somebody was told of."""
        self._last: dict[str, _Seen] = {}
        """What the last look saw."""

    def note(self, model: ModelFiles) -> None:
        """Take a model as it is for known."""
        self._known[model.name] = self._last[model.name] = _see(model)

    def note_all(self, models: Mapping[str, ModelFiles]) -> None:
        """Take all models as they are for known."""
        for model in models.values():
            self.note(model)

    def find_changed(self, models: Mapping[str, ModelFiles]) -> list[str]:
        """The names of models that are new, changed or gone, each told once."""
        seen = {name: _see(model) for name, model in models.items()}
        resting = [name for name in sorted({*self._known, *seen}) if seen.get(name) == self._last.get(name)]
        changed = [name for name in resting if seen.get(name) != self._known.get(name)]
        self._last = seen
        for name in changed:
            if name in seen:
                self._known[name] = seen[name]
            else:
                del self._known[name]
        return changed


def _see(model: ModelFiles) -> _Seen:
    versions = tuple((version, files.stamp) for version, files in model.versions.items())
    return model.config_stamp, versions, model.problem
