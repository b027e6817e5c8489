"""llama.cpp's server from the package xllamacpp, for comparisons; runs until it gets a signal.

    python -m ops.bench.children.llama_child FILE.gguf PORT STREAMS CONTEXT_TOKENS THREADS

The package is no dependency of this project: PYTHONPATH names a folder into which it has been installed.
"""

from __future__ import annotations

import importlib
import signal
import sys


def main(path: str, port: str, streams: str, context_tokens: str, threads: str) -> None:
    """Serve a GGUF file. context_tokens: of all streams together."""
    llama = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path, params.port = path, int(port)
    params.n_parallel, params.n_ctx = int(streams), int(context_tokens)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    server = llama.Server(params)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del server


if __name__ == "__main__":
    main(*sys.argv[1:])
