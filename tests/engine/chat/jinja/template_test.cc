#include "engine/chat/jinja/template.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/engine/chat/jinja/jinja_test_util.h"

namespace trimtab::jinja {
namespace {

using nlohmann::ordered_json;

std::string ErrorOf(const std::string& source, const ordered_json& context = {}) {
  return RenderWith(source, context).error;
}

/// The text with what came from the context in capitals' place: each such byte is "#", each byte of
/// a `generation` block "g", both "G".
std::string MarksOf(const std::string& source, const ordered_json& context) {
  const Outcome outcome = RenderWith(source, context);
  EXPECT_EQ(outcome.error, "");
  std::string marks;
  for (size_t i = 0; i < outcome.text.size(); ++i) {
    marks += ".#gG"[outcome.text.MarksAt(i)];
  }
  return marks;
}

TEST(JinjaTemplate, NamesTheLine) {
  EXPECT_EQ(ErrorOf("a\n\n{{ x.y }}"), "t: line 3: 'x' is undefined");
  EXPECT_EQ(ErrorOf("{% for i in [1] %}\n{{ i }}\n{{ i.y.z }}{% endfor %}"),
            "t: line 3: 'int object' has no attribute 'y'");
  EXPECT_EQ(ErrorOf("\n{% if a %}"),
            "t: line 2: expected {% elif %} or {% else %} or {% endif %} before the end of the "
            "template");
  EXPECT_EQ(ErrorOf("{{ a\n b }}"), "t: line 2: expected '}}', got 'b'");
  EXPECT_EQ(ErrorOf("{% for a in b recursive %}{% endfor %}"),
            "t: line 1: recursive loops are not read");
  EXPECT_EQ(ErrorOf("x\xff"), "t: line 1: expected UTF-8");
  EXPECT_EQ(ErrorOf("\n{{ raise_exception('no ' ~ 3) }}"), "no 3") << "the template's own words";
}

// Whatever is done to a text of a message, each byte keeps its origin.
TEST(JinjaTemplate, RemembersWhatCameFromTheContext) {
  const ordered_json context = {{"m", " Ab c "}, {"l", {"x", "y"}}, {"d", {{"k", "v"}}}, {"n", 5}};
  EXPECT_EQ(MarksOf("<{{ m }}>", context), ".######.");
  EXPECT_EQ(MarksOf("{{ '<' + m.strip() ~ '>' }}", context), ".####.");
  EXPECT_EQ(MarksOf("{{ m | trim | upper }}{{ m | title }}", context), "##########");
  EXPECT_EQ(MarksOf("{{ m[1:3] }}{{ m[::-1] }}{{ 'z' * 2 }}{{ m * 2 }}", context),
            "########..############");
  EXPECT_EQ(MarksOf("{{ m.replace('b', '<>') }}|{{ 'a-b' | replace('-', m) }}", context),
            "##..###..######.");
  EXPECT_EQ(MarksOf("{{ ', '.join(l) }}{{ l | join }}", context), "#..###");
  EXPECT_EQ(MarksOf("{{ d | tojson }}{{ [m, 1] | tojson }}", context),
            ".."
            "#"
            "...."
            "#"
            ".."
            ".."
            "######"
            ".....");
  EXPECT_EQ(MarksOf("{{ '%s=%s' % (m, 1) }}{{ '{:>8}.'.format(m) }}", context),
            "######....######.");
  EXPECT_EQ(MarksOf("{% for w in m.split() %}{{ w }}-{% endfor %}", context), "##.#.");
  EXPECT_EQ(MarksOf("{% set x %}<{{ m }}>{% endset %}{{ x }}{% macro f(a) %}[{{ a }}]{% endmacro %}"
                    "{{ f(m) }}",
                    context),
            ".######..######.");
  EXPECT_EQ(MarksOf("{% set ns = namespace(t='') %}{% for w in l %}{% set ns.t = ns.t + w + '.' %}"
                    "{% endfor %}{{ ns.t }}{{ l }}",
                    context),
            "#.#...#....#..");
}

TEST(JinjaTemplate, MarksWhatIsGenerated) {
  EXPECT_EQ(MarksOf("a{% generation %}b{{ m }}{% endgeneration %}c", {{"m", "xy"}}), ".gGG.");
  EXPECT_EQ(
      MarksOf("{% for i in [1, 2] %}{% generation %}{{ i }}{% endgeneration %}-{% endfor %}", {}),
      "g.g.");
}

// Templates come with models from anywhere: none may hang, crash or take all memory.
TEST(JinjaTemplate, EndsWhateverItIsGiven) {
  const char* const kEndless[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(n) %}{{ f(n) if n > 0 }}{{ f(n - 1) if n > 0 }}{% endmacro %}{{ f(99) }}",
      "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
      "endfor "
      "%}",
      "{{ 'a' * 99999999999 }}",
      "{{ [0] * 99999999999 }}",
      "{{ 'a' * 9223372036854775807 }}",
      "{{ ('a' * 99999).replace('', 'b' * 99999) }}",
      "{{ '%999999999d' % 1 }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ 'a'.ljust(99999999999) }}",
      "{{ 'a' | center(99999999999) }}",
      "{{ 'a' | indent(99999999999) }}",
      "{{ [1] | batch(99999999999, 0) | list }}",
      "{{ [1] | slice(99999999999, 0) | list }}",
      "{{ 2 ** 99999 }}",
      "{{ 2 ** 63 }}",
      "{{ -9223372036854775807 - 2 }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"
      "{{ ns.x }}",
      "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = cycler(ns.x) %}"
      "{% endfor %}",
      "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = [ns.x].index %}"
      "{% endfor %}",
  };
  for (const char* source : kEndless) EXPECT_NE(ErrorOf(source), "") << source;
  for (const char* part : {"(", "[", "-", "not ", "{1:", "a.b(", "a|f(", "1+(", "a[", "1 if "}) {
    std::string deep = "{{ ";
    for (int i = 0; i < 5000; ++i) deep += part;
    EXPECT_NE(ErrorOf(deep), "") << part;
  }
  for (const char* part : {" + a", ".a", "|f", "(a)", "[0]", " and a", " is a"}) {
    std::string wide = "{{ a";
    for (int i = 0; i < 5000; ++i) wide += part;
    EXPECT_NE(ErrorOf(wide + " }}"), "") << part;
  }
  std::string nested;
  for (int i = 0; i < 5000; ++i) nested += "{% if a %}";
  EXPECT_NE(ErrorOf(nested), "");
  EXPECT_EQ(ErrorOf("{% set ns = namespace() %}{% set ns.me = ns %}"
                    "{% macro f() %}{{ f }}{% endmacro %}{% set ns.f = f %}"
                    "{% for i in range(9999) %}{% set ns.n = namespace(n=ns.n) %}{% endfor %}"),
            "")
      << "what refers to itself is taken apart";
}

TEST(JinjaTemplate, SurvivesRandomTexts) {
  const std::string parts[] = {
      "{{",    "}}",         "{%",     "%}",   "{#",     "#}",        "-",        "+",
      " if ",  " for x in ", "x",      "'",    "\"",     "(",         ")",        "[",
      "]",     ".",          "|",      "~",    "\n",     " ",         "1",        "0.5",
      "endif", "endfor",     " else ", "set ", "=",      "macro f()", "endmacro", "namespace(",
      ",",     ":",          "**",     "//",   "%",      " is ",      " not ",    "join",
      "\\",    "raw",        "endraw", "x.y",  "tojson", "\xC3\xA9",  "\xFF",     "loop.index"};
  std::mt19937 random(7);
  int rendered = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string source;
    for (size_t count = random() % 30; count > 0; --count) {
      source += parts[random() % std::size(parts)];
    }
    rendered += RenderWith(source, {{"x", {{"y", {1, "a"}}}}}).error.empty() ? 1 : 0;
  }
  EXPECT_GT(rendered, 100) << "some are templates";
}

// Each of a large template's bytes changed, left out or doubled.
TEST(JinjaTemplate, SurvivesChangedTemplates) {
  const std::string whole =
      "{%- set ns = namespace(a=1, b='x') -%}\n{% macro m(a, b=2) %}{{ a|join(',') }}{{ b }}"
      "{% endmacro %}\n{%- for k, v in d.items() if v is not none %}\n{{ loop.index ~ k[::-1] }}"
      "{% if k in ['k'] and not ns.a > 3 %}{{ m([k, 1], b=v | tojson(indent=2)) }}"
      "{% elif k.startswith('z') %}{% break %}{% else %}{% continue %}{% endif %}\n{%- endfor %}"
      "{{ ('%s' % k) if k is defined else \"none\" }}{% raw %}{{ }}{% endraw %}{# c #}";
  const ordered_json context = {{"d", {{"k", "v"}, {"z", 1}, {"n", nullptr}}}};
  ASSERT_EQ(ErrorOf(whole, context), "");
  const std::string others = "{}%#'\"()[]|.,-+ \n0x\\";
  int failed = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string left_out = whole;
    left_out.erase(at, 1);
    std::string doubled = whole;
    doubled.insert(at, 1, whole[at]);
    std::string cut = whole.substr(0, at);
    for (const std::string& each : {left_out, doubled, cut}) {
      failed += ErrorOf(each, context).empty() ? 0 : 1;
    }
    for (const char other : others) {
      std::string changed = whole;
      changed[at] = other;
      failed += ErrorOf(changed, context).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(failed, 1000);
}

}  // namespace
}  // namespace trimtab::jinja
