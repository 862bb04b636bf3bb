"""A folder of whole files, on this machine or on any file system that fsspec knows.

A file is there whole or not at all: it is written under a passing name and then moved. So a reader never sees half of
one, whoever dies.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from .errors import Misconfigured, Unavailable


class FileFolder:
    """Files by name under one URL: `s3://bucket/filters/orders`, `file:///var/filters`, or a path.

    All of its methods raise `Unavailable` for trouble that may pass, `Misconfigured` for credentials.
    """

    def __init__(self, url: str) -> None:
        self.url = checked_url(url)
        self._system, path = file_system(url)
        self._path = path.rstrip("/")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def prove(self) -> None:
        """Write a file and remove it, so that whoever has much to do before the first file need not do it in vain."""
        self.write("writable", b"")
        self.remove("writable")

    def read(self, name: str) -> bytes | None:
        """Return what a file holds, None where there is none."""
        with self._mapped():
            try:
                return bytes(self._system.cat_file(self._at(name)))
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file in one step. One writer at a time for each name."""
        # Always the same passing name: what a writer that died has left under it is written over by the next.
        passing = self._at(f"{name}.part")
        with self._mapped():
            self._system.makedirs(self._path, exist_ok=True)
            self._system.pipe_file(passing, content)
            self._system.mv(passing, self._at(name))

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is no trouble."""
        with self._mapped():
            try:
                self._system.rm_file(self._at(name))
            except FileNotFoundError:
                return

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise Misconfigured(f"{self.url} refuses these credentials: {error}") from error
        except Exception as error:
            # File systems raise what their clients raise: there is no common kind of error.
            raise Unavailable(f"{self.url} cannot be reached: {type(error).__name__}: {error}") from error


def checked_url(url: str) -> str:
    """Return a URL that may be shown. Raises `Misconfigured`, without the text, where it holds a password."""
    parts = urlsplit(url)
    if parts.password is not None or ("://" in url and parts.query):
        raise Misconfigured(
            "a URL of files holds no password and no ?query: let the file system find its credentials by itself"
        )
    return url


def file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path there. Raises `Misconfigured`."""
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415
    except ImportError as error:
        needed = "pip install 'oncesink[files]', and fsspec's package for this file system"
        raise Misconfigured(f"{url} needs fsspec: {needed}") from error
    try:
        system, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise Misconfigured(f"fsspec does not open {url}: {error}") from error
    return system, path
