"""A stand-in for `supervisor.children.entrypoint`: the same first code, but every role is played by the stub actor."""

import sys

from supervisor.children import entrypoint

if __name__ == "__main__":
    entrypoint.RUN_BY_ROLE = dict.fromkeys(entrypoint.RUN_BY_ROLE, "tests.support.supervisor.stub_actor:run")
    entrypoint.leave(entrypoint.main(sys.argv[1:]))
