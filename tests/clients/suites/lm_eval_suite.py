"""lm-evaluation-harness on a local task of 20 documents: likelihoods over completions, with texts and with token ids; and what
is generated over chat completions.

The log-likelihoods are written to the file CLIENT_OUT, whose reader compares them with those of `transformers`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

URL, MODEL, FOLDER = os.environ["CLIENT_URL"], os.environ["CLIENT_MODEL"], os.environ["CLIENT_MODEL_FOLDER"]
COLOURS = ["red", "green", "blue", "white"]
THINGS = ["grass", "snow", "blood", "the sky", "coal", "a lemon", "an orange", "milk", "a leaf", "the sea"]
DOCUMENTS = [{"question": f"{word} {thing} {tail}", "choices": COLOURS, "answer": 0} for thing in THINGS for word, tail in
             (("The colour of", "is"), ("Everybody knows that", "looks"))]  # fmt: skip
TASK = """
task: colours
dataset_path: json
dataset_kwargs: {{data_files: {{test: {documents}}}, cache_dir: {cache}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list: [{{metric: acc}}]
"""
GENERATED = """
task: names
dataset_path: json
dataset_kwargs: {{data_files: {{test: {documents}}}, cache_dir: {cache}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{choices[0]}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 8, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""


@pytest.mark.parametrize("tokens", ["ids", "text"])
def test_twenty_documents(tokens: str, tmp_path: Path) -> None:
    documents = tmp_path / "documents.jsonl"
    documents.write_text("\n".join(json.dumps(one) for one in DOCUMENTS))
    (tmp_path / "colours.yaml").write_text(TASK.format(documents=documents, cache=tmp_path / "cache"))
    terms: dict[str, Any] = {"model": MODEL, "base_url": f"{URL}/v1/completions", "num_concurrent": 4, "max_retries": 1}
    backend = {"tokenizer_backend": "huggingface", "tokenizer": FOLDER} if tokens == "ids" else {"tokenizer_backend": "remote"}
    terms |= {**backend, "tokenized_requests": tokens == "ids"}
    tasks = TaskManager(include_path=str(tmp_path), include_defaults=False)
    found = simple_evaluate(
        model="local-completions", model_args=terms, tasks=["colours"], task_manager=tasks, log_samples=True, bootstrap_iters=0
    )
    assert found is not None
    samples = found["samples"]["colours"]
    assert len(samples) == len(DOCUMENTS)
    rows = [
        {"context": one["arguments"][at][0], "continuation": one["arguments"][at][1], "log_likelihood": float(answer[0][0])}
        for one in samples
        for at, answer in enumerate(one["resps"])
    ]
    if path := os.environ.get("CLIENT_OUT", ""):
        Path(f"{path}-{tokens}.json").write_text(json.dumps(rows))


def test_twenty_documents_over_chat_completions(tmp_path: Path) -> None:
    documents = tmp_path / "documents.jsonl"
    documents.write_text("\n".join(json.dumps(one) for one in DOCUMENTS))
    (tmp_path / "names.yaml").write_text(GENERATED.format(documents=documents, cache=tmp_path / "cache"))
    terms: dict[str, Any] = {"model": MODEL, "base_url": f"{URL}/v1/chat/completions", "num_concurrent": 4, "max_retries": 1}
    found = simple_evaluate(
        model="local-chat-completions",
        model_args=terms,
        tasks=["names"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
        apply_chat_template=True,
    )
    assert found is not None
    answers = [one["resps"][0][0] for one in found["samples"]["names"]]
    assert len(answers) == len(DOCUMENTS)
    assert all(answers)
    assert not any("\n" in answer for answer in answers)
