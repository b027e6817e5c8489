"""Values as other servers have them are answered with ours."""

from __future__ import annotations

import pytest

from messages.errors import ConfigError
from supervisor.config.config_file import table_of
from supervisor.config.server_config import load_config
from supervisor.foreign.values import VALUES, value_hint


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, values in VALUES.items() for value in values])
def test_a_foreign_value_is_refused_with_what_to_write(path: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, [table_of(f'{path}="{value}"')])
    assert str(caught.value).startswith(f"{path}: expected one of ")
    assert str(caught.value).endswith(value_hint(path, value))
    assert VALUES[path][value] in value_hint(path, value)


def test_nothing_is_said_of_a_value_that_no_server_has() -> None:
    assert [value_hint("worker.dtype", value) for value in ("int7", None, 5)] == ["", "", ""]
    assert value_hint("port", "half") == ""
