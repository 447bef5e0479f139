"""Where a C or C++ program finds what this package has: headers, libhvd, and its CMake files."""

from __future__ import annotations

import os

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def _existing(*parts: str) -> str:
    path = os.path.join(_PACKAGE, *parts)
    if not os.path.isdir(path):
        raise FileNotFoundError(f"{path} is not there: hvd runs from a build tree, not a wheel")
    return path


def include_path() -> str:
    """The folder for ``-I``: it holds ``hvd/hvd.h`` and ``hvd/c_api.h``."""
    return _existing("include")


def library_path() -> str:
    """The folder that holds ``libhvd.so``."""
    return _existing("lib")


def cmake_path() -> str:
    """The folder for ``CMAKE_PREFIX_PATH``, by which ``find_package(hvd)`` finds it all."""
    return _existing()
