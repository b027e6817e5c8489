"""Somebody removes the files of a journal while it is used: what lived in them is written again, and nothing is lost."""

from __future__ import annotations

import asyncio
import shutil
import stat
from pathlib import Path

import pytest

from actors.gateway.journal import segment_log, writer
from actors.gateway.journal.frames import Frame, Kind, read_frames
from actors.gateway.journal.segments import read_segment, segments_in
from messages.client import AsyncClient
from tests.support.gateway.fake_scheduler import FakeScheduler, oracle
from tests.support.gateway.gateway_rig import Rig
from tests.support.gateway.journal_file import files_in
from tests.support.gateway.journal_rig import GREEDY, journal_rig
from tests.support.waiting import DEADLINE_S, until


def remove_folder(folder: Path) -> None:
    """At once: the writer makes it again as soon as it is missing."""
    shutil.rmtree(folder.rename(folder.with_name("removed")))


def remove_files(folder: Path) -> None:
    for path in files_in(folder):
        path.unlink()


def kinds_in(folder: Path) -> set[Kind]:
    """Which kinds of frames are on disk. The last one may be half written."""
    found = segments_in(folder) if folder.is_dir() else []
    frames = [frame for segment in found for frame in read_frames(read_segment(segment), segment.salt)]
    return {frame.kind for frame in frames if isinstance(frame, Frame)}


async def restart_gateway(r: Rig, scheduler: FakeScheduler) -> None:
    """kill -9 of the gateway, then its next incarnation on the same folder."""
    incarnation = r.gateway.spawn_spec.incarnation
    await r.kill_gateway()
    scheduler.running.clear()  # a scheduler drops the attempts of a dead gateway
    await r.start_gateway(incarnation + 1)


@pytest.mark.parametrize("remove", [remove_folder, remove_files])
@pytest.mark.parametrize("is_busy", [True, False])
async def test_what_lived_in_removed_files_is_written_again(remove, is_busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_log, "_POLL_S", 0.0)
    monkeypatch.setattr(segment_log, "_POLL_S", 0.0)
    monkeypatch.setattr(writer, "_POLL_S", 0.001)
    async with journal_rig() as (r, scheduler, _), AsyncClient(r.settings.zeromq_endpoint) as client:
        folder = Path(r.settings.journal_path)
        scheduler.is_automatic = True
        await client.generate([9], max_tokens=5, sampling=GREEDY, request="done")
        scheduler.is_automatic = False
        running = asyncio.ensure_future(client.generate([1, 2], max_tokens=40, sampling=GREEDY))
        for _ in range(2):
            await until(lambda: len(scheduler.running) == 1)
            scheduler.step(4)
            await until(lambda: scheduler.acked == scheduler.sent)
            remove(folder)
            if is_busy:
                scheduler.step(1)
            await until(lambda: {Kind.REQUEST, Kind.ANSWER} <= kinds_in(folder))
            await restart_gateway(r, scheduler)
        await until(lambda: len(scheduler.running) == 1)
        n_submitted = len(scheduler.submits)
        again = asyncio.ensure_future(client.generate([9], max_tokens=5, sampling=GREEDY, request="done"))
        scheduler.step(40)
        assert (await asyncio.wait_for(running, DEADLINE_S)).tokens == oracle([1, 2], 40)
        assert (await asyncio.wait_for(again, DEADLINE_S)).tokens == oracle([9], 5)
        assert len(scheduler.submits) == n_submitted, "the finished answer was known"


async def test_the_folder_above_is_private_again_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start refuses a state directory that others may read."""
    monkeypatch.setattr(segment_log, "_POLL_S", 0.0)
    monkeypatch.setattr(writer, "_POLL_S", 0.001)
    async with journal_rig() as (r, scheduler, _), AsyncClient(r.settings.zeromq_endpoint) as client:
        folder = Path(r.settings.journal_path)
        scheduler.is_automatic = True
        await client.generate([9], max_tokens=5, sampling=GREEDY, request="done")
        shutil.rmtree(folder.parent)
        await until(lambda: Kind.ANSWER in kinds_in(folder))
        assert [stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)] == [0o700, 0o700]
