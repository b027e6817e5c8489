"""A stand-in for the entrypoint that writes the numbers of its open file descriptors to the file named by its first warm-up."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.stdin.buffer.read()
    Path(sys.argv[2]).write_text(" ".join(os.listdir("/proc/self/fd")))
