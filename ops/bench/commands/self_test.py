"""`self-test`: a server that does nothing but send chunks, so that the limit of the load tool itself is known."""

from __future__ import annotations

import multiprocessing
import socket

import click

from ops.bench.children.empty_server import serve_chunks
from supervisor.bench.serve_load import LoadPlan, measure, report


@click.command(context_settings={"show_default": True})
@click.option("--concurrency", default=64)
@click.option("--chunks", default=256, help="Chunks of one answer.")
@click.option("--requests", default=1024)
@click.option("--processes", default=1, help="Load processes.")
@click.option("--out")
def command(concurrency: int, chunks: int, requests: int, processes: int, out: str | None) -> None:
    """Measure the load tool against a server that costs nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = multiprocessing.get_context("fork").Process(target=serve_chunks, args=(listener,), daemon=True)
        process.start()
        try:
            plan = LoadPlan(
                f"http://127.0.0.1:{port}",
                model="empty",
                output_lengths=str(chunks),
                concurrency=concurrency,
                processes=processes,
                requests=requests,
            )
            result = measure(plan)
        finally:
            process.terminate()
            process.join(5)
    result["chunks_per_s"] = round(result["chunks"] / result["wall_s"])
    result["chunks_per_client_cpu_s"] = round(result["chunks_per_s"] / max(result["client_cpu_share"], 1e-9))
    report(result, "the load tool itself", out)
