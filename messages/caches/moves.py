"""All commands that move pages, and their answers."""

from __future__ import annotations

from messages.caches.disk_moves import DiskPagesMoved, MoveDiskPages
from messages.caches.exchange import ExchangePages, PagesExchanged
from messages.caches.page_moves import MovePages, PagesMoved, ReturnPages

Moves = MovePages | MoveDiskPages | ExchangePages | ReturnPages
Moved = PagesMoved | DiskPagesMoved | PagesExchanged
