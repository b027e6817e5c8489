"""A model in this program, without a server to care for: `LLM` starts a private one and ends it.

with LLM("smollm2") as llm:
    print(llm.generate("The hardiest animal on earth is", max_tokens=16).text)
"""

from messages.local.llm import LLM
from messages.local.private_server import PrivateServer

__all__ = ["LLM", "PrivateServer"]
