"""Copies of neighbours together: pages that follow each other, at places that follow each other, are one copy.

A GPU's copy engine pauses between two copies, and each takes the processor some microseconds to queue. So copies of 2 MiB do
not use the whole width of the bus.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from gpu_workers.pages.copy_stream import PlaceCopies


class CopyRun(NamedTuple):
    """Pages [page, page + n) and places [place, place + n)."""

    page: int
    place: int
    n: int


def runs_of(copies: PlaceCopies) -> list[CopyRun]:
    """The runs of these copies, in the order of places; each within one span of places."""
    order = np.argsort(copies.places, kind="stable")
    pages, places = copies.pages[order].astype(np.int64), copies.places[order].astype(np.int64)
    follows = (np.diff(pages) == 1) & (np.diff(places) == 1) & (places[1:] % copies.span != 0)
    starts = np.flatnonzero(np.concatenate(([True], ~follows))) if len(places) else np.zeros(0, np.int64)
    counts = np.diff(np.append(starts, len(places)))
    return [CopyRun(*run) for run in zip(pages[starts].tolist(), places[starts].tolist(), counts.tolist(), strict=True)]


def copy_rows(rows: torch.Tensor, copies: PlaceCopies, runs: list[CopyRun], *, to_places: bool) -> None:
    """Queue these copies, to places or from them, on the current stream. rows: [n, bytes of a place] uint8 on a GPU; the pages
    of `copies` are numbers of rows. runs: of these copies."""
    if runs:
        memory = torch.from_numpy(copies.memory)
        on_device = [rows[run.page : run.page + run.n] for run in runs]
        on_host = [memory[run.place : run.place + run.n] for run in runs]
        targets, sources = (on_host, on_device) if to_places else (on_device, on_host)
        torch._foreach_copy_(targets, sources, non_blocking=True)  # pyright: ignore[reportPrivateImportUsage]
