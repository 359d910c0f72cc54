"""Small templates, one for each thing that the language can do."""

# Rendered with CONTEXT below; each must give what jinja2 gives, or fail where it fails.
SNIPPETS = r'''
{{ name }} and {{ missing }} and {{ none_value }} {{ true_value }} {{ 1.0 }} {{ 1e20 }} {{ 1e-7 }} {{ 0.1 + 0.2 }}
{{ items }} {{ record }} {{ (1,) }} {{ (1, 'a') }} {{ [] }} {{ {} }} {{ "it's" }} {{ ["it's", 'a"b', 'x\n\ty\\'] }}
{{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ 2 * 'ab' }} {{ [0] * 3 }} {{ 'a' ~ 1 ~ none ~ true }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ true == 1 }} {{ none == false }}
{{ 2 in items }} {{ 9 not in items }} {{ 'am' in name }} {{ 'city' in record }} {{ missing in items }} {{ 1 in missing }}
{{ '' or 'x' }} {{ 'a' and 'b' }} {{ 0 or none or [] }} {{ not '' }} {{ not not 1 }} {{ none and 1 }}
{{ 'y' if true_value else 'n' }} {{ 'y' if false }} {{ 'a' if false else 'b' if false else 'c' }}
{{ items[0] }} {{ items[-1] }} {{ items[9] }} {{ items[1:] }} {{ items[:-1] }} {{ items[::-1] }} {{ items[::2] }} {{ items[5:1:-2] }}
{{ name[1:3] }} {{ name[::-1] }} {{ name[0] }} {{ name[-20:] }} {{ unicode[1] }} {{ unicode[::-1] }} {{ unicode | length }}
{{ record.city }} {{ record['city'] }} {{ record.none }} {{ record['none'] }} {{ record.items() }} {{ record.nested.deep[0] }}
{{ record.none.other }}
{{ missing.other }}
{{ missing['x'] }}
{{ missing() }}
{{ missing + 1 }}
{{ 'a' + missing }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ 1 < 'a' }}
{{ [1] + (2,) }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ items.0 }} {{ (1, 2).1 }} {{ 'abc'.1 }}
{{ record.__class__ }}
{{ record._hidden }}
{{ items.append(1) }}
{{ record.update({}) }}
{{ record.get('city') }} {{ record.get('x') }} {{ record.get('x', 'd') }} {{ record.keys() }} {{ record.values() | list }}
{{ record.keys() | list }} {{ record | list }} {{ record | length }} {{ record | items | list }} {{ dict(a=1, b=2) }} {{ dict(record, z=1) | length }}
{{ ' a b '.strip() }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcab'.strip('ab') }}|{{ '\u2003a\xa0'.strip() }}
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c '.split(none, 1) }} {{ ' a b c '.rsplit(maxsplit=1) }}
{{ 'a'.split('') }}
{{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ ''.split(',') }} {{ ''.split() }}
{{ 'Hello'.startswith('He') }} {{ 'Hello'.endswith(('x', 'lo')) }} {{ 'Hello'.startswith('l', 2) }} {{ 'a'.startswith('') }}
{{ 'hello WORLD'.title() }} {{ "they're o'neil".title() }} {{ 'hello-world foo' | title }} {{ "they're" | title }} {{ 'hELLO' | capitalize }} {{ 'hELLO'.capitalize() }} {{ 'aB'.swapcase() }}
{{ 'äöü ß'.upper() }} {{ 'ÄÖÜ'.lower() }} {{ 'x' | upper }} {{ 'X' | lower }} {{ 3 | upper }}
{{ 'aXbXc'.replace('X', '-') }} {{ 'aXbXc'.replace('X', '-', 1) }} {{ 'abc'.replace('', '-') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 121 | replace(1, 'x') }}
{{ ', '.join(['a', 'b']) }} {{ ''.join([]) }} {{ ['a', 1, none] | join('-') }} {{ 'abc' | join('.') }} {{ users | join(', ', attribute='name') }} {{ items | join }}
{{ ', '.join([1]) }}
{{ 'hello'.find('l') }} {{ 'hello'.find('x') }} {{ 'hello'.rfind('l') }} {{ 'hello'.index('l') }} {{ 'hello'.count('l') }} {{ 'ünü'.find('ü', 1) }} {{ 'hello'.find('l', 3, 4) }}
{{ 'hello'.index('x') }}
{{ 'prefix-a'.removeprefix('prefix-') }} {{ 'a.txt'.removesuffix('.txt') }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'a'.partition('=') }}
{{ 'a1'.isalnum() }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ 'AB1'.isupper() }} {{ 'ab1'.islower() }} {{ '1'.isupper() }}
{{ 'a'.ljust(3, '.') }}{{ 'a'.rjust(3) }}{{ 'ab'.center(5, '*') }}{{ '-5'.zfill(4) }}{{ 'ab' | center(5) }}|
{{ '{} {}'.format(1, 'a') }} {{ '{1} {0}'.format(1, 2) }} {{ '{x!r}'.format(x='q') }} {{ '{:>5}|{:<5}|{:^5}|{:05d}'.format('a', 'b', 'c', 42) }} {{ '{:.2f} {:,} {:x} {:%}'.format(3.14159, 1234567, 255, 0.5) }} {{ '{0[a]} {0[b]}'.format({'a': 1, 'b': 2}) }} {{ '{{}}'.format() }} {{ '{:{}}'.format('a', 3) }}|
{{ '{}'.format() }}
{{ '{:d}'.format('a') }}
{{ '%s and %d and %.1f and %05d and %r' % ('a', 3.7, 2.25, 42, 'q') }} {{ '%(a)s' % {'a': 1} }} {{ '100%%' % () }} {{ '%s' % 1 }} {{ '%s=%s' | format('a', 1) }} {{ '%-5s|%5s|%+d|%x' % ('a', 'b', 3, 255) }}
{{ '%s %s' % ('a',) }}
{{ '%d' % 'a' }}
{{ name | tojson }} {{ record | tojson }} {{ items | tojson(indent=2) }} {{ {'a': [], 'b': {}, 'c': (1, 2.5, none, true)} | tojson }} {{ 'a"\\\n\u0001é<>&\'' | tojson }}
{{ record | tojson(indent=4) }}
{{ {'b': 1, 'a': 'é'} | tojson(sort_keys=true, ensure_ascii=true, separators=(',', ':')) }} {{ {1: 2, true: 3, none: 4} | tojson }} {{ 1e100 | tojson }} {{ 'x' | tojson(true) }}
{{ missing | tojson }}
{{ record.keys() | tojson }}
{{ 'a' | default('b') }} {{ missing | default('b') }} {{ '' | default('b', true) }} {{ none_value | d('x') }} {{ missing | d }}|
{{ items | first }} {{ items | last }} {{ [] | first }}|{{ [] | last }}|{{ 'abc' | first }} {{ 'abc' | last }}
{{ [3, 1, 2] | sort }} {{ [3, 1, 2] | sort(reverse=true) }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A', 'c'] | sort(case_sensitive=true) }} {{ users | sort(attribute='age') | map(attribute='name') | list }} {{ users | sort(attribute='age,name') | map(attribute='name') | join }}
{{ [1, 'a'] | sort }}
{{ [1, 1, 2, 'a', 'A'] | unique | list }} {{ items | sum }} {{ users | sum(attribute='age') }} {{ [[1], [2]] | sum(start=[]) }} {{ items | min }} {{ items | max }} {{ [] | max }}| {{ users | max(attribute='age') }}
{{ items | reverse | list }} {{ 'abc' | reverse }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }}
{{ items | batch(2) | list }} {{ items | batch(2, 'x') | list }} {{ items | slice(2) | list }} {{ items | slice(3, 'x') | list }} {{ users | groupby('age') }}
{% for age, group in users | groupby('age') %}{{ age }}:{{ group | map(attribute='name') | join('+') }};{% endfor %}
{{ items | map('string') | list }} {{ ['a', 'b'] | map('upper') | join }} {{ users | map(attribute='zip', default='?') | list }} {{ users | map(attribute='tags.0') | list }} {{ ['a b', 'c d'] | map('replace', ' ', '_') | list }}
{{ items | select('odd') | list }} {{ items | reject('odd') | list }} {{ items | select('gt', 2) | list }} {{ [0, 1, ''] | select | list }} {{ users | selectattr('age', 'equalto', 30) | map(attribute='name') | list }} {{ users | rejectattr('admin') | map(attribute='name') | list }} {{ users | selectattr('admin', 'defined') | list | length }}
{{ 'on' if items | select('gt', 100) else 'off' }}
{{ (items | select('odd')) | length }}
{% set odd = items | select('odd') %}{{ odd | list }}{{ odd | list }}
{{ '42' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ '42.7' | int }} {{ 3.9 | int }} {{ 'ff' | int(base=16) }} {{ true | int }} {{ none | int }} {{ ' 5 ' | int }} {{ '-5' | int }} {{ '0x1f' | int(base=16) }} {{ '1_000' | int }}
{{ '1.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ 'x' | float(2.5) }} {{ 42.55 | round }} {{ 42.55 | round(1) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 42.1 | round(0, 'ceil') }} {{ 42.9 | round(method='floor') }} {{ 42 | round }} {{ 1234 | round(-2) }} {{ -5 | abs }} {{ -2.5 | abs }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent('> ') }}|{{ 'a\nb\n' | indent(2) }}|
{{ 'foo bar baz qux' | truncate(9) }} {{ 'foo bar baz qux' | truncate(9, true) }} {{ 'foo bar baz qux' | truncate(11) }} {{ 'foo bar baz qux' | truncate(11, false, '..', 0) }} {{ 'Hello, wörld foo_bar 12' | wordcount }}
{{ 'a b/c?d=é' | urlencode }} {{ {'a': 'b c', 'd': 1} | urlencode }} {{ '<a href="x">&\'' | escape }} {{ '<b>' | e }} {{ '<b>' | safe }} {{ ('<b>' | safe) + '<i>' }} {{ ('<b>' | safe) ~ '<i>' }} {{ '<p>a</p>  <b>c</b>' | striptags }} {{ 123456 | filesizeformat }} {{ 1000000 | filesizeformat(true) }}
{{ ' x ' | trim }} {{ 'xax' | trim('x') }} {{ 5 | trim }} {{ 5 | string + 'a' }} {{ items | string }} {{ 'abc' | list }} {{ 'abc' | count }}
{{ 5 | length }}
{{ none | length }}
{{ 'x' | nosuchfilter }}
{{ 'x' is nosuchtest }}
{{ name is defined }} {{ missing is defined }} {{ missing is undefined }} {{ none_value is none }} {{ none_value is not none }} {{ record.none is defined }} {{ record.absent is defined }}
{{ name is string }} {{ 1 is string }} {{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ true is boolean }} {{ 1 is boolean }} {{ true is true }} {{ 1 is true }} {{ false is false }}
{{ record is mapping }} {{ items is mapping }} {{ items is iterable }} {{ name is iterable }} {{ 1 is iterable }} {{ items is sequence }} {{ record is sequence }} {{ name is sequence }} {{ missing is iterable }} {{ range is callable }} {{ name is callable }}
{{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is sameas 1 }} {{ true is sameas true }} {{ 1 is sameas true }} {{ 'a' is in 'abc' }} {{ 1 is in [1] }} {{ 1 is not in [1] }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ '1' is lower }}
{{ 1 is eq 1 }} {{ 1 is equalto 2 }} {{ 1 is ne 2 }} {{ 2 is gt 1 }} {{ 2 is ge 2 }} {{ 1 is lt 2 }} {{ 1 is le 0 }} {{ 2 is greaterthan 1 }} {{ 'trim' is filter }} {{ 'x' is filter }} {{ 'odd' is test }}
{{ 1 is defined and 2 is defined }} {{ not missing is defined }} {{ (1 is odd) is true }}
{% for i in items %}{{ loop.index }}/{{ loop.length }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }} {% endfor %}
{% for i in items %}[{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}]{{ loop.cycle('a', 'b') }}{% endfor %}
{% for i in [1, 1, 2, 2] %}{{ loop.changed(i) }} {% endfor %}{% for i in [] %}x{% else %}none{% endfor %}{% for i in items if i > 1 %}{{ i }}{{ loop.index }}{% else %}no{% endfor %}
{% for i in items if i > 100 %}{{ i }}{% else %}no{% endfor %}{% for k, v in record.items() %}{{ k }}={{ v }};{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for i in 5 %}{% endfor %}
{% for i in none %}{% endfor %}
{% for i in missing %}x{% else %}e{% endfor %}{% for c in 'añb' %}{{ c }}-{% endfor %}{% for k in record %}{{ k }} {% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{{ range(3) }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(3)[1] }} {{ range(0) | list }} {{ range(3) | length }} {{ 2 in range(3) }}
{{ range(200000) }}
{{ range(1, 2, 0) }}
{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 3 %}{% endif %}{{ x }}
{% set ns = namespace(x=1, y='a') %}{% for i in items %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z }}|{{ ns['x'] }}
{% set ns = namespace({'a': 1}) %}{{ ns.a }}{% set ns.b = 2 %}{{ ns.b }}
{% set record.x = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}{% set (d, e) = [3, 4] %}{{ d }}{{ e }}
{% set a, b = [1] %}
{% set x %}block {{ name }}{% endset %}{{ x | upper }}{% set y | trim | upper %}  in  {% endset %}[{{ y }}]
{% macro m(a, b='d', c=none) %}({{ a }},{{ b }},{{ c }}){% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}{{ m() }}{{ m(1, c=[1]) }}{{ m.name }}{{ m.arguments }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x=2) }}
{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }}
{% macro m(a) %}<{{ caller(a) }}>{% endmacro %}{% call(x) m(5) %}in {{ x }} {{ name }}{% endcall %}{% call(x) m(6) %}{{ x }}{% endcall %}
{% macro m() %}<{{ caller() if caller else 'no' }}>{% endmacro %}{{ m() }}{% call m() %}x{% endcall %}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}{{ f }}
{% macro outer() %}{{ inner() }}{% endmacro %}{% macro inner() %}{{ late }}{% endmacro %}{% set late = 'L' %}{{ outer() }}
{% set x = 'outer' %}{% macro m() %}{{ x }}{% set x = 'inner' %}{{ x }}{% endmacro %}{{ x }}
{% with a = 1, b = name %}{{ a }}{{ b }}{% endwith %}{{ a }}{% filter upper | trim %} abc {{ name }} {% endfilter %}
{% generation %}gen {{ name }}{% endgeneration %} after
{% if false %}a{% elif true_value %}b{% else %}c{% endif %}{% if missing %}d{% endif %}{% if items and record %}e{% endif %}
{% set j = joiner(', ') %}{% for i in items %}{{ j() }}{{ i }}{% endfor %}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}
{{ raise_exception('refused: ' + name) }}
{{ strftime_now('%d %b %Y %H:%M') }} {{ strftime_now('%Y-%m-%d') }}
{# comment #}a{#- c -#} b {#+ x +#}
{% raw %}{{ not read }}{% endraw %}{%- raw -%} x {%- endraw -%} y
{{ "a" "b" 'c' }} {{ 'é\u00e9\x41\101\U0001F600' }} {{ '\q' }} {{ "a\
b" }}
{{ 0x1f }} {{ 0b11 }} {{ 0o17 }} {{ 1_000 }} {{ 1.5e3 }} {{ 12_3.4_5 }}
{{ 9223372036854775807 }} {{ -9223372036854775807 }}
{{ [1, 2,] }} {{ {'a': 1,} }} {{ (1, 2,) }} {{ () }} {{ m(1,) if false else 'ok' }}
{{ {'a': 1}.a }} {{ {'items': 5}['items'] }} {{ {'a': {'b': [1, {'c': 'deep'}]}}.a.b[1].c }} {{ {1: 'int', '1': 'str'}[1] }} {{ {(1, 2): 'tuple'}[(1, 2)] }}
{{ {[1]: 2} }}
{{ items[name] }} {{ items['0'] }} {{ record[0] }} {{ record[[1]] }}|{{ name['upper']() }} {{ name['x'] }}|
{{ items | attr('index') is callable }} {{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }} {{ (1, 2).index(2) }}
{{ range(*[1, 4]) | list }} {{ dict(**{'a': 1}) }}
{{ none }}{{ None }}{{ True }}{{ False }}{{ true }}{{ false }}
{{ loop }}
{{ 'a' if name == 'Sam' and items | length > 2 or false else 'b' }} {{ items | length > 2 }} {{ not items | length }}
{{ -items | length }}
{{ 1 if true else 2, 3 }} {{ 'x' ~ 'y' * 2 }} {{ 'a' + 'b' | upper }} {{ ('a' + 'b') | upper }}
{{ 1 + 2 | string }}
{{ name.strip().upper().lower() }} {{ name.nothing }}
{{ name.nothing() }}
{{ unknown_function(1) }}
{% if %}{% endif %}
{% for %}{% endfor %}
{% unknown %}
{% if true %}
{{ name
{{ name }
{{ }}
{{ 1 2 }}
{% endif %}
{{ 'a }}
{{ [1 }}
{% set 1 = 2 %}
{% break %}
{{ items | }}
{{ items is }}
{% include 'x' %}
{% extends 'x' %}
{% import 'x' as y %}
'''.strip("\n").split("\n")

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
