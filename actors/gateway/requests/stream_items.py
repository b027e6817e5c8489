"""The items of a request's stream: one number for each thing of it that becomes visible, in the order in which all of it did.

The item of a token is the index of its sequence. The other items are numbers that no sequence has as its index.

Replaying the journal gives the same order. A process that dies while the disk refuses writes may have shown more than the
journal has. So where the order could be another one, with several sequences, each process that goes on with a request begins a
new run of it, and items of different runs are never taken for each other.
"""

from __future__ import annotations

KEY_BITS = 20  # the low bits of a journal key: the index of the sequence in its request
END_ITEM = 1 << KEY_BITS  # added to the index of a sequence: the item of its ending
PING_ITEM = END_ITEM - 1  # the item of a ping
RUN_ITEM = END_ITEM - 2  # where a later process begins a new run of the request
SUSPICION_ROW = END_ITEM - 3  # in the journal, in place of an index: a sequence is under suspicion
