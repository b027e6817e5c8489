"""Many kernel calls as one: a team of threads goes through a table of calls together, with a barrier after each call.

A region of OpenMP for each kernel costs a fork and a join, and the way there through Python; a step has hundreds. Here the
whole table is one region. Calls too small for two threads are made by the thread that arrives last at a barrier, before it
releases the others.
"""

from __future__ import annotations

from llvmlite import ir

from gpu_workers.cpu.kernels.vector_code import COUNTERS, FIRST_WORD, FUNCTION, I32, I64, POINTER, Value, VectorCode

CALLS, N_CALLS, BARRIER, TEAM_SIZE, SYSCALL = range(FIRST_WORD, FIRST_WORD + 5)
CALL_WORDS = 3
_KERNEL, _WORDS, _IS_ALONE = range(CALL_WORDS)
ARRIVED, ROUND, NEXT, SLEEPING = 0, 8, 16, 24  # words of the barrier's memory, on cache lines of their own
BARRIER_WORDS = 32
_SPINS = 2048  # of a waiting thread before it sleeps: about 30 us
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129  # private to the process
_ALL = 1 << 30


def write_program(code: VectorCode) -> None:
    """Argument words, in the order of the names above: the table of calls (address of the kernel, of its words, 1 if one thread
    makes it alone) and its length; memory of the barrier, zeros at first; addresses of omp_get_num_threads and of
    syscall. Leaves all counters as it found them, so it can be run again."""
    b = code.b
    team_size = b.inttoptr(code.argument(TEAM_SIZE), ir.FunctionType(I32, []).as_pointer())
    team = b.sext(b.call(team_size, []), I64)
    begin = b.block
    head, end = b.append_basic_block(), b.append_basic_block()
    b.branch(head)
    b.position_at_end(head)
    position = b.phi(I64)
    position.add_incoming(I64(0), begin)
    _wait_for_team(code, team, position)
    call = b.load_atomic(_barrier(code, NEXT), "monotonic", 8, typ=I64)
    body = b.append_basic_block()
    b.cbranch(b.icmp_signed("<", call, code.argument(N_CALLS)), body, end)
    b.position_at_end(body)
    _run(code, call)
    position.add_incoming(code.add(call, 1), b.block)
    b.branch(head)
    b.position_at_end(end)


def _wait_for_team(code: VectorCode, team: Value, position: Value) -> None:
    """Wait for the whole team. The last thread to arrive resets the counters of the call before `position`, makes the calls
    that are for one thread, and stores which call is next."""
    b = code.b
    lead, wait, end = (b.append_basic_block() for _ in range(3))
    this_round = b.load_atomic(_barrier(code, ROUND), "monotonic", 8, typ=I64)
    before = b.atomic_rmw("add", _barrier(code, ARRIVED), I64(1), "acq_rel")
    b.cbranch(b.icmp_signed("==", code.add(before, 1), team), lead, wait)

    b.position_at_end(lead)
    _clear(code, b.select(b.icmp_signed(">", position, I64(0)), b.sub(position, I64(1)), I64(0)))
    following = _run_alone(code, position)
    b.atomic_rmw("xchg", _barrier(code, NEXT), following, "monotonic")
    b.atomic_rmw("xchg", _barrier(code, ARRIVED), I64(0), "monotonic")
    b.atomic_rmw("xchg", _barrier(code, ROUND), code.add(this_round, 1), "seq_cst")
    asleep = b.atomic_rmw("add", _barrier(code, SLEEPING), I64(0), "seq_cst")
    wake = b.append_basic_block()
    b.cbranch(b.icmp_signed("==", asleep, I64(0)), end, wake)
    b.position_at_end(wake)
    _futex(code, _FUTEX_WAKE, I64(_ALL))
    b.branch(end)

    b.position_at_end(wait)
    _wait(code, this_round, end)
    b.position_at_end(end)


def _run_alone(code: VectorCode, position: Value) -> Value:
    """Make calls from `position` on until one is for the team; returns its number."""
    b = code.b
    before = b.block
    head, look, body, end = (b.append_basic_block() for _ in range(4))
    b.branch(head)
    b.position_at_end(head)
    call = b.phi(I64)
    call.add_incoming(position, before)
    b.cbranch(b.icmp_signed("<", call, code.argument(N_CALLS)), look, end)
    b.position_at_end(look)
    b.cbranch(b.icmp_signed("!=", _entry(code, call, _IS_ALONE), I64(0)), body, end)
    b.position_at_end(body)
    _run(code, call)
    _clear(code, call)
    call.add_incoming(code.add(call, 1), b.block)
    b.branch(head)
    b.position_at_end(end)
    return call


def _wait(code: VectorCode, this_round: Value, end: Value) -> None:
    """Spin until the round changes; after a while sleep, so that a thread that the operating system has suspended finds a free
    core."""
    b = code.b
    before = b.block
    look, again, sleep = (b.append_basic_block() for _ in range(3))
    b.branch(look)
    b.position_at_end(look)
    spins = b.phi(I64)
    spins.add_incoming(I64(0), before)
    found = b.load_atomic(_barrier(code, ROUND), "acquire", 8, typ=I64)
    b.cbranch(b.icmp_signed("!=", found, this_round), end, again)
    b.position_at_end(again)
    code.pause()
    spins.add_incoming(code.add(spins, 1), b.block)
    b.cbranch(b.icmp_signed("<", spins, I64(_SPINS)), look, sleep)
    b.position_at_end(sleep)
    b.atomic_rmw("add", _barrier(code, SLEEPING), I64(1), "seq_cst")
    _futex(code, _FUTEX_WAIT, this_round)  # returns at once when the round is another by now
    b.atomic_rmw("sub", _barrier(code, SLEEPING), I64(1), "seq_cst")
    spins.add_incoming(spins, b.block)
    b.branch(look)


def _run(code: VectorCode, call: Value) -> None:
    b = code.b
    kernel = b.inttoptr(_entry(code, call, _KERNEL), FUNCTION.as_pointer())
    b.call(kernel, [_words(code, call)])


def _clear(code: VectorCode, call: Value) -> None:
    """Set the counters of a call to 0."""
    for counter in COUNTERS:
        code.b.store(I64(0), code.at(_words(code, call), counter, I64))


def _entry(code: VectorCode, call: Value, field: int) -> Value:
    return code.load_int(code.pointer(CALLS), code.add(code.mul(call, CALL_WORDS), field), 64)


def _words(code: VectorCode, call: Value) -> Value:
    return code.b.inttoptr(_entry(code, call, _WORDS), POINTER)


def _barrier(code: VectorCode, word: int) -> Value:
    return code.at(code.pointer(BARRIER), word, I64)


def _futex(code: VectorCode, operation: int, value: Value) -> None:
    """The system call on the low half of ROUND, without a deadline."""
    number = I64(202 if code.machine.is_x86 else 98)
    call = code.b.inttoptr(code.argument(SYSCALL), ir.FunctionType(I64, [I64] * 5).as_pointer())
    address = code.b.ptrtoint(_barrier(code, ROUND), I64)
    code.b.call(call, [number, address, I64(operation), value, I64(0)])
