"""Which running servers of this user use a model."""

from __future__ import annotations

import json
import os
from contextlib import suppress

from supervisor.directories.run_dir_files import SERVER
from supervisor.library.stored_model import StoredModel
from supervisor.operator.server_search import running


def servers_using(model: StoredModel) -> list[str]:
    """The servers that were started with the model's name or have a folder of it among their settings, by their ports. Their
    files are searched as text, so that other releases count too: a server too many is no harm."""
    words = [model.name, *(text for folder in model.folders for text in (str(folder), os.path.realpath(folder)))]
    quoted = [json.dumps(word).encode() for word in words]
    found = []
    for run_dir, port in running():
        with suppress(OSError):
            content = (run_dir / SERVER).read_bytes()
            if any(word in content for word in quoted):
                found.append(f"port {port} ({run_dir})")
    return found
