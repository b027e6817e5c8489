"""All commands that move pages, and their answers."""

from __future__ import annotations

from messages.caches.disk_moves import DiskMoves, DiskPagesFound, DiskPagesMoved
from messages.caches.exchange import ExchangePages, PagesExchanged
from messages.caches.page_moves import MovePages, PagesMoved, ReturnPages, ReturnPlaces

Moves = MovePages | DiskMoves | ExchangePages | ReturnPages | ReturnPlaces
Moved = PagesMoved | DiskPagesMoved | DiskPagesFound | PagesExchanged
