"""Twenty-four prompts: plain text and conversations, short and long, with other scripts and with repetition."""

from __future__ import annotations

PLAIN = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "1, 2, 3, 4, 5,",
    "The three laws of thermodynamics are",
    "Dear Sir or Madam,\n",
    "import numpy as np\n\n",
    "Water boils at 100 degrees Celsius. Water freezes at",
    "Roses are red, violets are",
    "A B C D E F G A B C D E F G A B C",
    "Die Hauptstadt von Deutschland ist",
    "名前は",
)
CHAT = (
    "What is the capital of Italy?",
    "Write a haiku about autumn.",
    "Name three primary colors.",
    "What is 2 + 2?",
    "Explain gravity to a child in two sentences.",
    "Write a Python function that adds two numbers.",
    "Who wrote Hamlet?",
    "List the days of the week.",
    "Translate 'good morning' into French.",
    "What do bees make?",
    "Tell me a short joke.",
    "Why is the sky blue? " * 8,
)
