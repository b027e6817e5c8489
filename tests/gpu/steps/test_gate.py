"""The gate on a CUDA device, or in Triton's interpreter: a closed one holds a step up, but not for ever."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from gpu_workers.batch.step_gate import StepGate
from gpu_workers.cuda.kernels.gate import wait_at_gate
from tests.support.workers.device_choice import INTERPRETED, kernel_device

pytestmark = pytest.mark.gpu


def test_an_open_gate_is_passed_at_once() -> None:
    gate = StepGate(kernel_device())
    wait_at_gate(gate.closed, gate.looks)
    assert int(gate.looks) == 0


def test_a_closed_gate_is_passed_after_a_bound() -> None:
    gate = StepGate(kernel_device())
    with gate.urgent():
        wait_at_gate(gate.closed, gate.looks, most_looks=50)
        assert int(gate.looks) == 50
    wait_at_gate(gate.closed, gate.looks, most_looks=50)
    assert int(gate.looks) == 0


def test_a_step_goes_on_when_the_gate_opens() -> None:
    if INTERPRETED:
        pytest.skip("the interpreter runs one kernel at a time")
    device = kernel_device()
    gate, stream = StepGate(device), torch.cuda.Stream(device, priority=-1)
    wait_at_gate(gate.closed, gate.looks)  # compiled
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), gate.urgent():
        torch.cuda._sleep(100_000_000)  # some 50 ms
    while not int_on(stream, gate.closed):
        pass
    wait_at_gate(gate.closed, gate.looks, most_looks=1 << 30)
    torch.cuda.synchronize()
    assert 0 < int(gate.looks) < 1 << 30
    assert int(gate.closed) == 0


def int_on(stream: torch.cuda.Stream, tensor: torch.Tensor) -> bool:
    """True once the stream has begun: a copy on another one sees what it has written, or that it has ended."""
    with torch.cuda.stream(torch.cuda.Stream(tensor.device)):
        return bool(int(tensor)) or stream.query()
