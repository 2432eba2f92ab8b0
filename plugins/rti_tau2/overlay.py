"""A view of a shared database that copies a record when somebody takes it.

tau2's retail and airline databases are 6 and 15 MB of records, of which an episode touches a
handful. All sessions of a process read the same ones; each owns what it has asked for by key, and
what it has added.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


class Overlay(Mapping[str, Any]):
    """One table of the database.

    By key it hands out a record of one's own, to be changed at will. In loops over `values()` and
    `items()` a record that was never asked for by key is the shared one, to be read only: tau2's
    searches do no more, which a test holds them to.
    """

    def __init__(self, shared: Mapping[str, Any]) -> None:
        self._shared = shared
        self._own: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._own:
            self._own[key] = self._shared[key].model_copy(deep=True)
        return self._own[key]

    def __setitem__(self, key: str, record: Any) -> None:
        self._own[key] = record

    def __contains__(self, key: object) -> bool:
        return key in self._own or key in self._shared

    def __iter__(self) -> Iterator[str]:
        yield from self._shared
        yield from (key for key in self._own if key not in self._shared)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def values(self) -> Any:
        """Records in the order of their keys, for reading."""
        return (record for _, record in self.items())

    def items(self) -> Any:
        """Keys and records, for reading."""
        return ((k, self._own[k] if k in self._own else self._shared[k]) for k in self)

    def changes(self) -> dict[str, str]:
        """The records that differ from the shared ones, as tau2 writes them for its hash."""
        written = {key: _written(record) for key, record in self._own.items()}
        return {
            key: text
            for key, text in sorted(written.items())
            if key not in self._shared or text != _written(self._shared[key])
        }


def _written(record: Any) -> str:
    return json.dumps(record.model_dump(warnings=False), sort_keys=True, default=str)


def over(database: Any) -> Any:
    """A database of the same kind whose tables all lie over those of `database`."""
    tables = {name: Overlay(getattr(database, name)) for name in type(database).model_fields}
    return type(database).model_construct(**tables)


def changes(database: Any) -> dict[str, dict[str, str]]:
    """What differs from the shared database, a table each. Two are equal when these are."""
    return {name: getattr(database, name).changes() for name in type(database).model_fields}
