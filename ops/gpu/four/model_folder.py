"""A model folder for random weights: a configuration, and a tokenizer with text for every id of its vocabulary.

    python3 -m ops.gpu.four.model_folder CONFIG.json TOKENIZER_FOLDER OUT

With a small tokenizer and a large vocabulary most random tokens have no text, and a drill that counts events with text sees
pauses that are none. Ids without text are words here, such as `w60000`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click

_SPACE = "Ġ"  # how tokenizers of bytes write the space before a word
_TOKENIZER = "tokenizer.json"


@click.command()
@click.argument("config", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("tokenizer", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
def command(config: Path, tokenizer: Path, out: Path) -> None:
    """Write the folder OUT."""
    make_model_folder(config, tokenizer, out)


def make_model_folder(config: Path, tokenizer: Path, out: Path) -> None:
    """Write config.json, the tokenizer's files, and a tokenizer.json (BPE of bytes) with all ids below `vocab_size`."""
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(config, out / "config.json")
    for path in tokenizer.iterdir():
        if path.name not in (_TOKENIZER, "config.json") and path.is_file():
            shutil.copyfile(path, out / path.name)
    known = json.loads((tokenizer / _TOKENIZER).read_text(encoding="utf-8"))
    words: dict[str, int] = known["model"]["vocab"]
    words |= {added["content"]: added["id"] for added in known["added_tokens"]}  # others get ids behind all words
    taken = set(words.values())
    n_words = int(json.loads(config.read_text(encoding="utf-8"))["vocab_size"])
    words |= {f"{_SPACE}w{number}": number for number in range(n_words) if number not in taken}
    (out / _TOKENIZER).write_text(json.dumps(known, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    command()
