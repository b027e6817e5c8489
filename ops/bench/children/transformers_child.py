"""Plain `transformers` in a process of its own: `generate` over a static batch of equally long prompts, greedy.

python -m ops.bench.children.transformers_child MODEL_FOLDER DTYPE
{"batch": 8, "prompt_tokens": 128, "new_tokens": 128, "seed": 0}  ->  {"wall_s": 3.1}
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from ops.bench.children.line_child import answer_lines, reserve_output


def main(folder: str, dtype: str) -> None:
    """Load the model once, then answer."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    replies = reserve_output()
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(question["seed"])
        shape = (question["batch"], question["prompt_tokens"])
        ids = torch.randint(10, model.config.vocab_size, shape, generator=generator)
        n = question["new_tokens"]
        began_s = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=n,
                max_new_tokens=n,
                pad_token_id=0,
            )
        wall_s = time.perf_counter() - began_s
        assert out.shape[1] == shape[1] + n
        return {"wall_s": wall_s, "version": transformers.__version__, "torch": torch.__version__}

    answer_lines(replies, answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
