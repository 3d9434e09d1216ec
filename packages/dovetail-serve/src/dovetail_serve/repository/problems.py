"""What is wrong with a model of the repository, for whoever runs the server, and the same made safe for clients."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dovetail.errors import DovetailError

__all__ = ["ModelConfigError", "RepositoryError", "tell_client", "tell_on_one_line"]

_PATH: Final = re.compile(
    r"(?:(?<=[\s'\"(=:,])|^)(?:[A-Za-z]:)?[/\\](?=\S)(?:[^\s'\"/\\:,;)]+[/\\])*([^\s'\"/\\:,;)]*)"
)
_MOST_CHARACTERS: Final = 500


class RepositoryError(DovetailError):
    """A folder of the repository cannot be served."""


class ModelConfigError(RepositoryError):
    """A ``config.toml`` says what cannot be."""


def tell_on_one_line(error: BaseException) -> str:
    r"""The message of an error on one line.

    >>> tell_on_one_line(RepositoryError("no model", where="m/1", fix="add model.plan"))
    'm/1: no model; fix: add model.plan'
    """
    text = str(error) or type(error).__name__
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def tell_client(error: BaseException, root: Path) -> str:
    """The same without folders of this machine, and without the texts of other libraries.

    >>> tell_client(RepositoryError("cannot read '/srv/models/m/1/model.plan'"), Path("/srv/models"))
    "cannot read 'm/1/model.plan'"
    >>> tell_client(RepositoryError("no file /etc/secret/key.pem"), Path("/srv/models"))
    'no file key.pem'
    >>> tell_client(RepositoryError("no shapes", got="(1, 4) / (2, 4)"), Path("/srv/models"))
    'no shapes; got (1, 4) / (2, 4)'
    >>> tell_client(OSError("disk at 0x7f00 gone"), Path("/srv/models"))
    'it cannot be loaded (OSError); the log of the server says why'
    """
    if not isinstance(error, DovetailError):
        return f"it cannot be loaded ({type(error).__name__}); the log of the server says why"
    text = tell_on_one_line(error).replace(f"{root}/", "").replace(f"{root}\\", "")
    text = _PATH.sub(lambda match: match[1], text)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."
