"""A conversation in the terminal: what was said, the system prompt, the options of the next requests, and figures. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ChatFigures:
    """One answer in numbers. `first_s`: until its first text; `total_s`: until its end, or the moment when it was stopped."""

    n_tokens: int
    first_s: float
    total_s: float
    is_whole: bool  # False: it was stopped

    def text(self) -> str:
        """For people, on one line."""
        writing_s = self.total_s - self.first_s
        pace = f", {(self.n_tokens - 1) / writing_s:.1f} tokens/s" if self.n_tokens > 1 and writing_s > 0.0 else ""
        stopped = "" if self.is_whole else " (stopped)"
        return f"{self.n_tokens} tokens{stopped}, first after {self.first_s:.2f} s{pace}"


@dataclass
class Conversation:
    """What the next request consists of. `options`: of the client library, by name."""

    system: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    turns: list[dict[str, str]] = field(default_factory=list)
    figures: list[ChatFigures] = field(default_factory=list)

    def asked(self, text: str) -> list[dict[str, str]]:
        """The messages with which to ask `text` now. Nothing is kept of it before `answered`."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *self.turns, {"role": "user", "content": text}]

    def answered(self, question: str, answer: str, figures: ChatFigures) -> None:
        """Keep a question and its answer, also one that was stopped: what was shown is part of the conversation."""
        self.turns += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        self.figures.append(figures)

    def clear(self) -> None:
        """Forget what was said. System prompt and options stay."""
        self.turns.clear()

    def statistics(self) -> str:
        """Figures of the last answer, and of all of them together."""
        if not self.figures:
            return "no answer yet"
        n_tokens, busy_s = sum(one.n_tokens for one in self.figures), sum(one.total_s for one in self.figures)
        answers = "1 answer" if len(self.figures) == 1 else f"all {len(self.figures)} answers"
        whole = f"{answers}: {n_tokens} tokens in {busy_s:.1f} s"
        return f"{self.figures[-1].text()}\n{whole}"
