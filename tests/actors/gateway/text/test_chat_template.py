"""Chat templates: what a model's template may do, and how every failure becomes a TemplateError."""

from __future__ import annotations

from datetime import datetime

import pytest

from actors.gateway.text import chat_template
from actors.gateway.text.chat_template import ChatTemplate, TemplateError

TURNS = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


def render(source: str, **special_tokens: str) -> str:
    return ChatTemplate(source, special_tokens).render(TURNS)


def test_turns_special_tokens_and_the_prompt_for_the_answer() -> None:
    source = (
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    assert render(source, bos_token="<s>") == "<s>[user]hi[assistant]hello[assistant]"


def test_loop_controls_and_filters_that_templates_use() -> None:
    assert render("{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}") == "hi"
    assert render('{{ {"b": "ü", "a": 1} | tojson }}') == '{"b": "ü", "a": 1}'
    assert render('{{ strftime_now("%Y") }}') in {str(year) for year in (datetime.now().year - 1, datetime.now().year)}


def test_tools_and_documents_are_there_and_empty() -> None:
    assert render("{% if tools is none and documents is none %}none{% endif %}") == "none"


def test_literals_are_the_strings_of_expressions() -> None:
    template = ChatTemplate("{{ messages[0].content.split('</think>')[-1] }} plain text", {})
    assert "</think>" in template.literals
    assert not any("plain" in literal for literal in template.literals)


@pytest.mark.parametrize("source", ["{% for %}", "{{ unclosed", "{% nothing %}"])
def test_a_source_that_cannot_be_compiled_is_refused(source: str) -> None:
    with pytest.raises(TemplateError, match=r"^chat template: "):
        ChatTemplate(source, {})


def test_a_template_that_refuses_says_why() -> None:
    with pytest.raises(TemplateError, match=r"^roles must alternate$"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source", ["{{ 1 / 0 }}", "{{ messages[9].content.strip() }}", "{{ messages.append(1) }}", "{{ ''.__class__.__mro__ }}"]
)
def test_whatever_a_template_raises_is_about_the_conversation(source: str) -> None:
    """The last two are attempts to change and to reach something: the sandbox stops them."""
    with pytest.raises(TemplateError, match=r"^the model's chat template cannot render this conversation: "):
        render(source)


def test_a_prompt_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_TEXT_CHARACTERS", 10)
    assert render("{{ 'x' * 10 }}") == "x" * 10
    with pytest.raises(TemplateError, match="expected at most 10 characters, got 11"):
        render("{{ 'x' * 11 }}")
