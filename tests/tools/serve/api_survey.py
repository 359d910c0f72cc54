#!/usr/bin/env python3
"""Sends a server every field, message form and path of other servers' APIs, one by one.

usage: api_survey.py URL [MODEL]      prints docs/serving-api.md on stdout, counts on stderr

The lists are of OpenAI's reference, vLLM's protocol and llama.cpp's server, so they hold what
others have, not what this server has. A field is sent with a value that asks for it, and with
the one that asks for nothing where the first is refused.
"""

import json
import sys
import urllib.error
import urllib.request

# Name, a value that asks for something, a value that asks for nothing (or leaves the default).
SAMPLING = [
    ("temperature", 0.5, 1), ("top_p", 0.9, 1), ("top_k", 5, -1), ("min_p", 0.1, 0),
    ("presence_penalty", 0.5, 0), ("frequency_penalty", 0.5, 0),
    ("repetition_penalty", 1.2, 1), ("logit_bias", {"70": 5}, {}), ("seed", 7, None),
    ("stop", ["zz"], []), ("n", 2, 1), ("best_of", 2, 1), ("user", "me", ""),
    ("stream", True, False), ("stream_options", {"include_usage": True}, None),
    ("use_beam_search", True, False), ("length_penalty", 2, 1), ("early_stopping", True, False),
    ("stop_token_ids", [70], []), ("include_stop_str_in_output", True, False),
    ("ignore_eos", True, False), ("min_tokens", 2, 0), ("skip_special_tokens", False, True),
    ("spaces_between_special_tokens", False, True), ("truncate_prompt_tokens", 3, -1),
    ("truncation_side", "left", "right"), ("prompt_logprobs", 1, None),
    ("logprob_token_ids", [70], []), ("allowed_token_ids", [70, 71], None),
    ("bad_words", ["bad"], []), ("detokenize", False, True), ("watermarking", True, False),
    ("return_tokens_as_token_ids", True, False), ("return_token_ids", True, False),
    ("response_format", {"type": "json_object"}, {"type": "text"}),
    ("structured_outputs", {"choice": ["a", "b"]}, {}),
    ("guided_json", {"type": "object"}, None), ("guided_regex", "a+", None),
    ("guided_choice", ["a", "b"], None), ("guided_grammar", "root ::= \"a\"", None),
    ("guided_decoding_backend", "xgrammar", None), ("guided_whitespace_pattern", " ", None),
    ("structural_tag", "{}", None), ("logits_processors", ["x"], []), ("priority", 1, 0),
    ("request_id", "abc", None), ("session_id", "abc", None), ("cache_salt", "x", None),
    ("kv_transfer_params", {"a": 1}, {}), ("vllm_xargs", {"a": 1}, {}),
    ("repetition_detection", {"a": 1}, None), ("thinking_token_budget", 5, -1),
    ("stream_interval", 4, 1), ("store", True, False), ("metadata", {"a": "b"}, {}),
    ("service_tier", "flex", "auto"), ("safety_identifier", "x", None),
    ("prompt_cache_key", "x", None), ("prompt_cache_retention", "24h", None),
    ("n_predict", 4, -1), ("typical_p", 0.5, 1), ("tfs_z", 0.5, 1), ("top_n_sigma", 1, -1),
    ("mirostat", 2, 0), ("mirostat_tau", 5, 5), ("mirostat_eta", 0.1, 0.1),
    ("dynatemp_range", 0.5, 0), ("dynatemp_exponent", 1, 1), ("repeat_penalty", 1.1, 1),
    ("repeat_last_n", 64, 64), ("penalize_nl", True, False), ("dry_multiplier", 0.8, 0),
    ("dry_base", 1.75, 1.75), ("dry_allowed_length", 2, 2), ("dry_penalty_last_n", -1, -1),
    ("dry_sequence_breakers", ["\n"], []), ("xtc_probability", 0.5, 0),
    ("xtc_threshold", 0.1, 0.1), ("samplers", ["top_k"], []), ("min_keep", 3, 0),
    ("n_keep", 5, 0), ("n_discard", 5, 0), ("n_indent", 2, 0), ("n_cache_reuse", 1, 0),
    ("t_max_predict_ms", 100, 0), ("t_max_prompt_ms", 100, 0), ("image_data", [{"id": 1}], []),
    ("id_slot", 0, -1), ("cache_prompt", False, True), ("return_progress", True, False),
    ("return_tokens", True, False), ("timings_per_token", True, False),
    ("post_sampling_probs", True, False), ("response_fields", ["a"], []),
    ("lora", [{"id": 0, "scale": 1}], []), ("grammar", "root ::= \"a\"", ""),
    ("grammar_lazy", True, False), ("grammar_triggers", [{"type": 1}], []),
    ("preserved_tokens", ["a"], []), ("json_schema", {"type": "object"}, None),
    ("n_probs", 3, 0),
]
TOOL = {"type": "function", "function": {
    "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
CHAT = SAMPLING + [
    ("max_tokens", 4, None), ("max_completion_tokens", 4, None), ("logprobs", True, False),
    ("top_logprobs", 2, 0), ("tools", [TOOL], []), ("tool_choice", "required", "none"),
    ("parallel_tool_calls", False, True), ("functions", [{"name": "f"}], []),
    ("function_call", {"name": "f"}, "none"), ("modalities", ["text", "audio"], ["text"]),
    ("audio", {"voice": "x", "format": "wav"}, None),
    ("prediction", {"type": "content", "content": "x"}, None), ("web_search_options", {}, None),
    ("reasoning_effort", "low", None), ("verbosity", "low", None),
    ("include_reasoning", False, True), ("reasoning_format", "none", "auto"),
    ("thinking_forced_open", True, False), ("parse_tool_calls", True, False), ("echo", True, False),
    ("add_generation_prompt", False, True), ("continue_final_message", True, False),
    ("add_special_tokens", True, False), ("documents", [{"title": "a", "text": "b"}], None),
    ("chat_template", "{{ 1 }}", None), ("chat_template_kwargs", {"enable_thinking": False}, {}),
    ("mm_processor_kwargs", {"a": 1}, {}), ("media_io_kwargs", {"a": 1}, {}),
    ("no_such_field", 1, None),
]
COMPLETIONS = SAMPLING + [
    ("max_tokens", 4, None), ("logprobs", 2, None), ("echo", True, False),
    ("suffix", "x", ""), ("add_special_tokens", False, True),
    ("prompt_embeds", "AAAA", None), ("no_such_field", 1, None),
]


def user(text="Hello"):
    return {"role": "user", "content": text}


CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}
MESSAGES = [
    ("a system message first", [{"role": "system", "content": "Be kind."}, user()]),
    ("a system message between", [user(), {"role": "system", "content": "Be kind."}, user()]),
    ("a developer's message", [{"role": "developer", "content": "Be kind."}, user()]),
    ("several users in a row", [user(), user("And?")]),
    ("an assistant first", [{"role": "assistant", "content": "Hi"}, user()]),
    ("an assistant last", [user(), {"role": "assistant", "content": "I"}]),
    ("an assistant last, with prefix", [user(), {"role": "assistant", "content": "I",
                                                 "prefix": True}]),
    ("parts of text", [{"role": "user", "content": [{"type": "text", "text": "a"},
                                                    {"type": "text", "text": "b"}]}]),
    ("a name", [{**user(), "name": "me"}]),
    ("null content with tool calls", [user(), CALL, user()]),
    ("a tool's answer", [user(), CALL, {"role": "tool", "tool_call_id": "call_1",
                                        "content": "2"}]),
    ("a function's answer", [user(), {"role": "assistant", "content": None, "function_call": {
        "name": "f", "arguments": "{}"}}, {"role": "function", "name": "f", "content": "2"}]),
    ("reasoning of an answer", [user(), {"role": "assistant", "content": "Hi",
                                         "reasoning_content": "Greet."}, user()]),
    ("a refusal", [user(), {"role": "assistant", "content": None, "refusal": "No."}, user()]),
    ("null for what is left out", [user(), {"role": "assistant", "content": "Hi", "refusal": None,
                                            "audio": None, "tool_calls": None}, user()]),
    ("an empty text", [user("")]),
    ("an image", [{"role": "user", "content": [{"type": "image_url", "image_url": {
        "url": "data:,"}}]}]),
    ("a sound", [{"role": "user", "content": [{"type": "input_audio", "input_audio": {
        "data": "", "format": "wav"}}]}]),
    ("a file", [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}]),
    ("no messages", []),
    ("a role of its own", [{"role": "robot", "content": "x"}]),
]
PROMPTS = [
    ("a text", "ab"), ("several texts", ["ab", "cd"]), ("token ids", [70, 71]),
    ("several lists of token ids", [[70, 71], [72]]), ("texts and token ids", ["ab", [70]]),
    ("an empty text", ""), ("an empty list", []),
]
RESPONSES = [
    ("model", "MODEL", None), ("instructions", "Be kind.", None), ("temperature", 0.5, 1),
    ("top_p", 0.9, 1), ("max_output_tokens", 3, None), ("stream", True, False),
    ("stream_options", {"include_obfuscation": False}, None),
    ("text", {"format": {"type": "json_object"}}, {"format": {"type": "text"}}),
    ("tools", [{"type": "function", "name": "f", "parameters": {}}], []),
    ("tool_choice", "required", "auto"), ("parallel_tool_calls", False, True),
    ("max_tool_calls", 1, None), ("reasoning", {"effort": "low"}, {}),
    ("include", ["message.output_text.logprobs"], []), ("top_logprobs", 2, 0),
    ("truncation", "auto", "disabled"), ("previous_response_id", "resp_1", None),
    ("conversation", "conv_1", None), ("prompt", {"id": "pmpt_1"}, None),
    ("background", True, False), ("store", True, False), ("metadata", {"a": "b"}, {}),
    ("user", "me", ""), ("service_tier", "flex", "auto"), ("safety_identifier", "x", None),
    ("prompt_cache_key", "x", None), ("prompt_cache_retention", "24h", None), ("seed", 7, None),
    ("request_id", "abc", None), ("no_such_field", 1, None),
]
EMBEDDINGS = [
    ("model", "MODEL", None), ("encoding_format", "base64", "float"), ("dimensions", 3, None),
    ("user", "me", ""), ("truncate_prompt_tokens", 3, -1), ("truncation_side", "left", "right"),
    ("add_special_tokens", False, True), ("priority", 1, 0), ("request_id", "abc", None),
    ("input_type", "query", None), ("no_such_field", 1, None),
]
FIELD_HEAD = ("field", "accepted", "ignored", "refused")
GET, POST = "GET", "POST"
TALK = {"messages": [user()], "max_tokens": 2}
ROUTES = [
    (GET, "/", None), (GET, "/health", None), (GET, "/v1/health", None), (GET, "/ping", None),
    (GET, "/version", None), (GET, "/metrics", None), (GET, "/openapi.json", None),
    (GET, "/v1/models", None), (GET, "/models", None), (GET, "/v1/models/", None),
    (GET, "/v1/models/MODEL", None), (GET, "/models/MODEL", None),
    (POST, "/v1/completions", {"prompt": "a", "max_tokens": 2}),
    (POST, "/completions", {"prompt": "a", "max_tokens": 2}),
    (POST, "/v1/chat/completions", TALK), (POST, "/chat/completions", TALK),
    (POST, "/v1/chat/completions/", TALK),
    (POST, "/v1/responses", {"input": "a", "max_output_tokens": 2}),
    (POST, "/responses", {"input": "a", "max_output_tokens": 2}),
    (POST, "/v1/embeddings", {"input": "a"}), (POST, "/embeddings", {"input": "a"}),
    (POST, "/tokenize", {"prompt": "a"}), (POST, "/v1/tokenize", {"prompt": "a"}),
    (POST, "/detokenize", {"tokens": [70]}), (POST, "/v1/detokenize", {"tokens": [70]}),
    (POST, "/completion", {"prompt": "a"}), (POST, "/infill", {"input_prefix": "a"}),
    (POST, "/embedding", {"content": "a"}), (POST, "/apply-template", TALK),
    (GET, "/props", None), (GET, "/slots", None), (GET, "/load", None),
    (GET, "/lora-adapters", None), (POST, "/v1/messages", TALK), (POST, "/api/chat", TALK),
    (POST, "/v1/rerank", {}), (POST, "/rerank", {}), (POST, "/score", {}), (POST, "/pooling", {}),
    (POST, "/classify", {}), (POST, "/v1/audio/speech", {}),
    (POST, "/v1/audio/transcriptions", {}), (POST, "/v1/images/generations", {}),
    (POST, "/v1/moderations", {}), (GET, "/v1/files", None), (GET, "/v1/batches", None),
    (GET, "/v1/responses/x", None),
]


class Server:
    """Answers of the server at `url`."""

    def __init__(self, url, model):
        self.url = url
        self.model = model

    def send(self, method, path, body):
        """Status, the names that were ignored, and the error's message."""
        request = urllib.request.Request(self.url + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read().decode()
                failed = "data: {\"error\"" in text or text.startswith("{\"error\"")
                return (500 if failed else answer.status, answer.headers.get("X-Trimtab-Ignored"),
                        text if failed else "")
        except urllib.error.HTTPError as error:
            return error.code, None, json.loads(error.read())["error"]["message"]


def said(message, model):
    """A message as a cell of a table, for whatever model."""
    text = message.replace("'" + model + "'", "'MODEL'").replace("|", "\\|")
    return text.split("; valid:")[0]


def kind_of_fields(server, path, body, fields):
    """The rows (field, accepted, ignored, refused) and counts of fields sent to one path."""
    api = server.fields(path)
    rows, counts = [], {"accepted": 0, "ignored": 0, "refused": 0}
    for name, value, neutral in fields:
        beside = {"tools": [TOOL]} if name in ("tool_choice", "parallel_tool_calls") else {}
        if name == "parallel_tool_calls":
            beside = {}
        if name == "stream_options":
            beside = {"stream": True}
        if name == "top_logprobs" and "messages" in body:
            beside = {"logprobs": True}
        if value == "MODEL":
            value = server.model
        if name == "continue_final_message":
            beside = {"messages": [user(), {"role": "assistant", "content": "I"}]}
        status, ignored, message = server.send(POST, path, {**body, **beside, name: value})
        shown = api.get(name, {})
        note = shown.get("description", "")
        if status == 200 and (ignored or shown.get("x-kind") == "changes nothing"):
            counts["ignored"] += 1
            rows.append((name, "", "unknown: named in the header" if ignored else note, ""))
        elif status == 200:
            counts["accepted"] += 1
            rows.append((name, note or "yes", "", ""))
        else:
            again, _, _ = server.send(POST, path, {**body, name: neutral})
            counts["refused"] += 1
            only = f"only `{json.dumps(neutral)}`" if again == 200 and neutral is not None else ""
            why = note if shown.get("x-kind") == "neutral values only" else message
            rows.append((name, only, "", said(why, server.model)))
    return rows, counts


def kind_of_forms(server, path, body, key, forms):
    rows, counts = [], {"accepted": 0, "refused": 0}
    for name, value in forms:
        status, _, message = server.send(POST, path, {**body, key: value})
        counts["accepted" if status == 200 else "refused"] += 1
        rows.append((name, "yes" if status == 200 else "", said(message, server.model)))
    return rows, counts


def kind_of_routes(server):
    rows, counts = [], {"accepted": 0, "refused": 0}
    for method, path, body in ROUTES:
        status, _, message = server.send(method, path.replace("MODEL", server.model), body)
        counts["accepted" if status == 200 else "refused"] += 1
        rows.append((f"{method} {path}", "yes" if status == 200 else "",
                     said(message, server.model)))
    return rows, counts


def fields_of(url, path):
    """What the server's own description says of the fields of a path; nothing without one."""
    try:
        with urllib.request.urlopen(url + "/openapi.json", timeout=60) as answer:
            api = json.load(answer)
    except urllib.error.HTTPError:
        return {}
    body = api["paths"][path]["post"]["requestBody"]
    return body["content"]["application/json"]["schema"]["properties"]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def main():
    url = sys.argv[1].rstrip("/")
    model = sys.argv[2] if len(sys.argv) > 2 else "tiny"
    server = Server(url, model)
    server.fields = lambda path: fields_of(url, path)
    talk = {"model": model, "messages": [user()], "max_tokens": 4}
    write = {"model": model, "prompt": "ab", "max_tokens": 4}
    parts = []
    for title, head, (rows, counts) in [
            ("Fields of `/v1/chat/completions`", FIELD_HEAD,
             kind_of_fields(server, "/v1/chat/completions", talk, CHAT)),
            ("Fields of `/v1/completions`", FIELD_HEAD,
             kind_of_fields(server, "/v1/completions", write, COMPLETIONS)),
            ("Fields of `/v1/responses`", FIELD_HEAD,
             kind_of_fields(server, "/v1/responses", {"input": "a", "max_output_tokens": 4},
                            RESPONSES)),
            ("Fields of `/v1/embeddings`", FIELD_HEAD,
             kind_of_fields(server, "/v1/embeddings", {"input": "a"}, EMBEDDINGS)),
            ("Messages", ("form", "accepted", "refused with"),
             kind_of_forms(server, "/v1/chat/completions", talk, "messages", MESSAGES)),
            ("Prompts", ("form", "accepted", "refused with"),
             kind_of_forms(server, "/v1/completions", write, "prompt", PROMPTS)),
            ("Paths", ("path", "accepted", "refused with"), kind_of_routes(server))]:
        words = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        print(f"{title}: {words} of {len(rows)}", file=sys.stderr)
        code = [(f"`{row[0]}`", *row[1:]) if title not in ("Messages", "Prompts") else row
                for row in rows]
        parts.append(f"## {title}\n\n{words}, of {len(rows)}.\n\n{table(head, code)}")
    print("""# What the server's API takes

`tests/tools/serve/api_survey.py URL` writes this page. It sends a server each field, message form
and path of the APIs of OpenAI, vLLM and llama.cpp alone, with a value that asks for something. The
model is tiny, and its chat template is `plain`; a model's own template decides which messages and
tools it takes.

- accepted: the field has its effect. *only* names the value that a refused field may have.
- ignored: the field changes no answer here. Unknown fields are ignored too, and named in the header
  `X-Trimtab-Ignored` and in the log; `serve --strict` refuses them.
- refused: the answer would not be what the field asks for.
""")
    print("\n".join(parts).rstrip())


if __name__ == "__main__":
    main()
