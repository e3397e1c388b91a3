"""Another distribution may have written its files into this package."""

from __future__ import annotations

import importlib.metadata
import warnings

OTHER = "undolog-sdk"


def warn_of_another() -> None:
    """`undolog-sdk` of PyPI has the same import name, so that each overwrites the other's files."""
    try:
        version = importlib.metadata.version(OTHER)
    except importlib.metadata.PackageNotFoundError:
        return
    warnings.warn(
        f"the distribution {OTHER} {version} is installed too and has the same import name: the "
        "files of both are mixed. Uninstall both, then install undolog-python-sdk again",
        RuntimeWarning,
        stacklevel=3,
    )
