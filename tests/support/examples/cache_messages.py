"""One example of each internal message about caches."""

from __future__ import annotations

from messages.caches import disk_moves, equal, exchange, page_moves, prefixes, similar
from messages.wire.arrays import float32s, int32s, int64s, uint64s
from messages.wire.message import Message

CACHES: tuple[Message, ...] = (
    prefixes.FindPrefix(query=3, hashes=uint64s([2**64 - 1, 5])),
    prefixes.PrefixFound(query=3, replicas=[1], pages=[2]),
    page_moves.MovePages(
        epoch=2,
        number=4,
        stored_pages=int32s([5]),
        stored_places=int32s([0]),
        stored_hashes=uint64s([0x1234_5678_9ABC_DEF1]),
        loaded_places=int32s([1, 2]),
        loaded_pages=int32s([7, 6]),
        loaded_hashes=uint64s([3, 5]),
    ),
    page_moves.PagesMoved(epoch=2, number=4, failed=int32s([1]), load_s=0.002),
    page_moves.ReturnPages(epoch=2, pages=int32s([9, 8])),
    disk_moves.MoveDiskPages(
        epoch=2,
        number=5,
        written_places=int32s([3]),
        written_disk_places=int32s([8]),
        written_hashes=uint64s([0x1234_5678_9ABC_DEF1]),
        read_disk_places=int32s([0, 9]),
        read_places=int32s([1, 2]),
        read_hashes=uint64s([3, 5]),
        written_parents=uint64s([7]),
        written_tokens=int32s(list(range(16))),
    ),
    disk_moves.DiskPagesMoved(epoch=2, number=5, failed=int32s([0]), read_s=0.03),
    prefixes.PagesSealed(number=1, hashes=uint64s([5]), snapshot=True, sent_s=20.5),
    prefixes.PagesDropped(number=2, hashes=uint64s([5]), sent_s=20.5),
    exchange.PagesWanted(call=7, hashes=uint64s([0, 0x1234_5678_9ABC_DEF1]), tokens=int32s(range(16))),
    exchange.PagesLent(call=7, places=int32s([3]), regions=int64s([2**51])),
    exchange.ExchangePages(
        epoch=2,
        number=6,
        stored_pages=int32s([5]),
        stored_places=int32s([3]),
        stored_hashes=uint64s([0x1234_5678_9ABC_DEF1]),
        lender=1,
        regions=int64s([2**51]),
        loaded_places=int32s([4]),
        loaded_pages=int32s([8]),
        loaded_hashes=uint64s([5]),
    ),
    exchange.PagesExchanged(epoch=2, number=6, failed=int32s([0]), load_s=0.002, store_s=0.001, region=2**50),
    disk_moves.FindDiskPages(epoch=2, number=6, before=9),
    disk_moves.DiskPagesFound(
        epoch=2,
        number=6,
        first=4,
        places=int32s([8]),
        hashes=uint64s([0x1234_5678_9ABC_DEF1]),
        parents=uint64s([7]),
        tokens=int32s(list(range(16))),
    ),
    prefixes.ForgetPages(call=3, scope=b"12345678", tokens=int32s([5, 6]), older_than_s=60.0),
    prefixes.PagesForgotten(call=3, pages=40),
    prefixes.InventoryWanted(),
    similar.FindSimilar(query=4, circle=b"0123456789abcdef", vector=float32s([0.6, 0.8]), least=0.95),
    similar.SimilarFound(query=4, has_answer=True, similarity=0.97, ids=int32s([7, 8]), reason="length"),
    similar.KeepSimilar(
        circle=b"0123456789abcdef",
        vector=float32s([0.6, 0.8]),
        ids=int32s([7, 8]),
        reason="stop",
        scope=b"12345678",
        start=int32s([1, 2]),
        began_s=1e9,
    ),
    equal.AnswersKept(
        answers=(
            equal.KeptAnswer(
                key=b"0123456789abcdef",
                sequences=(equal.KeptSequence(ids=b"\1\0\0\0", reason="stop", n_cached=16),),
                scope=b"12345678",
                starts=(b"\2\0\0\0",),
                began_s=1e9,
                since_s=1e9,
                model=1,
            ),
        ),
        used=(b"0123456789abcdef",),
    ),
    equal.ForgetAnswers(call=5, scope=b"12345678", tokens=int32s([5, 6]), older_than_s=60.0, model=1),
    equal.AnswersForgotten(call=5, equal=3, similar=2),
)
