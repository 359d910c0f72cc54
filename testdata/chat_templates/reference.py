"""Chat templates as Hugging Face's transformers renders them, by jinja2 itself."""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """{% generation %} blocks, of which only the text matters here."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def environment(now=datetime.datetime(2024, 7, 26, 12, 30, 0)):
    """The environment that apply_chat_template renders in, at the time `now`."""

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = now.strftime
    return made


def render(template, context):
    """{"output": text}, or {"error": message}."""
    try:
        return {"output": environment().from_string(template).render(**context)}
    except Exception as fault:  # whatever a template can cause
        return {"error": str(fault) or type(fault).__name__}
