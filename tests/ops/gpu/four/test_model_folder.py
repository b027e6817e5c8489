"""A folder for random weights has text for every id."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from ops.gpu.four.model_folder import make_model_folder


def test_every_id_has_text(tmp_path: Path) -> None:
    small = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    small.pre_tokenizer, small.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    small.add_special_tokens(["<end>"])
    source = tmp_path / "tokenizer"
    source.mkdir()
    small.save(str(source / "tokenizer.json"))
    (source / "chat_template.jinja").write_text("{{ messages }}")
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 40}))
    make_model_folder(tmp_path / "config.json", source, tmp_path / "out")
    made = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert made.encode("ab").ids == [2]
    assert made.decode([2, 4, 39]) == "ab w4 w39"
    assert all(made.decode([number]) for number in range(40) if number != 3)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"config.json", "tokenizer.json", "chat_template.jinja"}
