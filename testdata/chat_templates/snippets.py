"""Small templates, one for each thing that the language can do."""

import os

# A line each in snippets.txt. Rendered with CONTEXT below, each must give what jinja2 gives, or
# fail where it fails.
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "snippets.txt"),
          encoding="utf-8") as _file:
    SNIPPETS = _file.read().strip("\n").split("\n")

# Line breaks and white space around tags.
BLOCKS = [
    "a\n{% if true %}\nb\n{% endif %}\nc\n",
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n\n",
    "a {% if true -%}  b  {%- endif %} c",
    "a\n\n{%- if true -%}\n\n b \n{%- endif -%}\n\nc",
    "a\n  {%+ if true %}b{% endif +%}\nc",
    "a\n{{ name }}\n{{- name -}}\n{{ name }}\n",
    "  {# comment #}  \nx\n  {#- c -#}\n  y\n{# c +#}\nz",
    "{% for i in items %}\n  * {{ i }}\n{% endfor %}\nend",
    "{% for i in items -%}\n  * {{ i }}\n{% endfor %}\nend",
    "{%- for i in items %}\n{{- i }}\n{%- endfor %}",
    "x  {% set a = 1 %}  \ny\t{% set b = 2 %}\n{{ a }}{{ b }}",
    "a\r\nb\rc\n{% if true %}\r\nd{% endif %}",
    "{% macro m() %}\n  text\n{% endmacro %}\n[{{ m() }}]",
    "{% set x %}\n  text\n{% endset %}\n[{{ x }}]",
    "\n\n{% if true %}\n\n{% endif %}\n\n",
    "{{ name }}\n\n",
    "{{ name }}\n",
    "a{{ '\n' }}{% if true %}\n{% endif %}b",
    "{% if true %}a{% endif %}\u3000{%- if true %}b{% endif %}",
    "{{ {'a': {'b': 1}} }} {{ {'a': {'b': 1}}['a']['b'] }} {{ '}}' }} {{ '%}' }}",
    "{ { % a #} %} }} {",
    "{% raw %}\n  {{ x }}\n{% endraw %}\nend",
    "  {%- raw %}  x  {% endraw -%}  \nend",
    "{%if true%}a{%endif%}{{name}}{%-if true-%} b {%-endif-%}",
    "{% if true: %}a{% endif %}{% for i in items: %}{{ i }}{% endfor %}",
    "",
    "\n",
    "plain text",
]

CONTEXT = {
    "name": "Sam",
    "unicode": "añ語😀",
    "items": [1, 2, 3, 4, 5],
    "none_value": None,
    "true_value": True,
    "record": {"city": "Zürich", "none": None, "nested": {"deep": [1.5, "x"]}, "n": 3},
    "users": [
        {"name": "Ada", "age": 36, "tags": ["x"], "admin": True},
        {"name": "bob", "age": 30, "tags": ["y", "z"]},
        {"name": "Cy", "age": 30, "tags": [], "admin": False},
    ],
}
