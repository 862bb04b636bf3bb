"""Credentials that a service repeats in a reply do not show in a message, in whatever form it writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

_SHORTEST_MASKED = 4
_FOR_HTML = str.maketrans({each: f"\\u{ord(each):04x}" for each in "&<>"})
"""Many writers of JSON escape these too."""


class Masks:
    """The values of headers, with the parts of `Bearer abc`, and those of queries; plain and as JSON escapes them."""

    def __init__(self, headers: Sequence[tuple[bytes, bytes]], queries: Iterable[str]) -> None:
        values = [value.decode() for _, value in headers]
        hidden = {*values, *queries, *(part for value in values for part in value.split())}
        forms = {form for each in hidden if len(each) >= _SHORTEST_MASKED for form in _forms(each)}
        # A short one within a long one would break it up, and the rest would stand.
        self._forms = sorted(forms, key=len, reverse=True)

    def masked(self, text: str) -> str:
        """Take them out of a text that the other side wrote. It may have been cut off within one."""
        for form in self._forms:
            text = text.replace(form, "***")
        begun = max((_begun(text, form) for form in self._forms), default=0)
        return text[: len(text) - begun] + "***" if begun else text


def _begun(text: str, form: str) -> int:
    """Return how many characters of a form stand at the end of a text."""
    longest = min(len(form) - 1, len(text))
    return next((n for n in range(longest, _SHORTEST_MASKED - 1, -1) if text.endswith(form[:n])), 0)


def _forms(value: str) -> set[str]:
    quoted = {value, json.dumps(value)[1:-1]}
    slashed = quoted | {each.replace("/", "\\/") for each in quoted}
    return slashed | {each.translate(_FOR_HTML) for each in slashed}
