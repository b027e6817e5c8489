"""How `chat` and `run` answer flags that they do not have: most are options of a request."""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.foreign.foreign_names import CommandWithHints, hint

_TALK: Mapping[str, str] = {
    "--format": """-o 'response_format={"type": "json_object"}'""",
    "--think": "-o 'chat_template_kwargs={\"enable_thinking\": true}'",
    "--system-prompt": "--system",
    "--temp": "-o temperature=VALUE",
    **dict.fromkeys(("--max-new-tokens", "--n-predict", "-n"), "-o max_tokens=VALUE"),
    "--base-url": "--url",
    "--api-base": "--url",
    **dict.fromkeys(("--prompt", "-p"), "the prompt is the second argument of `supervisor run`; `supervisor chat` asks for it"),
    "--keepalive": "a server has one model, which stays loaded",
    "--nowordwrap": "lines are shown as they come",
    "--stream": "an answer is shown as it comes; `supervisor run --json` prints it whole",
}


class TalkCommand(CommandWithHints):
    """A command whose requests have options that are no flags of its own."""

    def hint_for(self, name: str) -> str:
        """What there is in the place of a flag; "" if nothing is known."""
        from supervisor.chat.request_options import SETTABLE

        if name in ("--model", "-m") and not self.has_flag("--model"):
            return "here it is the first argument, MODEL"
        if said := hint(name, _TALK):
            return said
        option = name.removeprefix("--").replace("-", "_")
        return f"here it is -o {option}=VALUE" if name.startswith("--") and option in SETTABLE else super().hint_for(name)

    def instead_of(self, value: str) -> str:
        """What was meant by an argument too many."""
        return super().instead_of(value) if self.has_flag("--model") else "; a prompt of several words needs quotes"
