"""The seal tables of one scheduler in its replica's vault: opened when a gang begins, given again to a new vault."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import structlog

from actors.pages.seal_table import Seals, SealTable, SealTables, create_table, map_table
from messages.descriptors.client import DescriptorClient
from messages.errors import DescriptorError
from messages.ids import actor_name
from messages.run_dir import vault_path

_PAGES, _PLACES, _DISK_PLACES = "seal table", "host table", "disk table"  # keys
_TIMEOUT_S = 1.0  # the vault answers in microseconds; without it nothing is adopted, and the scheduler goes on


class SealStore:
    """The tables of the scheduler of `replica`: of the pages of the device, and of the places of the other tiers. `vault`: the
    name of its vault. `is_on` False: it has no vault and no tables."""

    def __init__(self, run_dir: Path, replica: int, is_on: bool) -> None:
        self.vault = actor_name("vault", replica)
        at = vault_path(run_dir, replica), actor_name("scheduler", replica), is_on
        self.pages, self.places = KeptTable(*at, _PAGES), KeptTable(*at, _PLACES)
        self.disk_places = KeptTable(*at, _DISK_PLACES)
        self.tables = SealTables(self.pages, self.places, self.disk_places)

    def give_again(self) -> None:
        """Put the present tables into the vault, which may be new. Returns at once."""
        self.pages.give_again()
        self.places.give_again()
        self.disk_places.give_again()


class KeptTable(Seals):
    """One table, which lies in the vault at `path` under this owner and key."""

    def __init__(self, path: Path, owner: str, is_on: bool, key: str) -> None:
        self._path, self._owner, self._is_on, self._key = path, owner, is_on, key
        self._descriptor: int | None = None
        self._log = structlog.get_logger().bind(actor=owner, table=key)

    def left(self) -> SealTable | None:
        """The table that an earlier scheduler has left in the vault; None if there is none, or it is damaged."""
        if not self._is_on:
            return None
        try:
            with DescriptorClient(self._path, timeout_s=_TIMEOUT_S) as client:
                kept = next(iter(client.find(self._owner, self._key)), None)
        except DescriptorError as error:
            self._log.warning("the vault did not give the seal table", reason=str(error))
            return None
        if kept is None:
            return None
        self._drop()
        self._descriptor = kept.descriptor
        try:
            return map_table(kept.descriptor)
        except (ValueError, OSError) as error:
            self._log.warning("the seal table is damaged", reason=str(error))
            return None

    def open(self, generation: int, n_pages: int) -> SealTable | None:
        """The table of this memory generation: the one that an earlier scheduler has left in the vault, or an empty one. None
        without a vault, or when the machine has no memory for it."""
        if not self._is_on:
            return None
        found = self.left()
        if found is not None and (found.generation, found.n_pages) == (generation, n_pages):
            return found
        self._drop()
        try:
            self._descriptor, table = create_table(generation, n_pages)
        except OSError as error:
            self._log.error("a seal table could not be made", reason=str(error))
            return None
        self._give(self._descriptor)
        return table

    def give_again(self) -> None:
        """Put the present table into the vault, which may be new. Without a vault the table is kept for the next one.

        Returns at once: a vault that has just started answers late, and steps must not wait for it."""
        if self._descriptor is None:
            return
        try:
            descriptor = os.dup(self._descriptor)  # the table may be replaced meanwhile
        except OSError as error:
            self._log.warning("the seal table is not in the vault", reason=str(error))
            return
        threading.Thread(target=partial(self._give_and_close, descriptor), name="vault", daemon=True).start()

    def _give_and_close(self, descriptor: int) -> None:
        try:
            self._give(descriptor)
        finally:
            os.close(descriptor)

    def _give(self, descriptor: int) -> None:
        try:
            with DescriptorClient(self._path, timeout_s=_TIMEOUT_S) as client:
                client.put(self._owner, self._key, descriptor)
        except DescriptorError as error:
            self._log.warning("the seal table is not in the vault", reason=str(error))

    def _drop(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
