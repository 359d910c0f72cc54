// Writes goldens.json: small vocabularies, and what Hugging Face's own library makes of some lines
// with them, under every rule that a tokenizer.json may have.
//
//   npm install --prefix FOLDER tokenizers@0.23.2 && NODE_PATH=FOLDER/node_modules node make_goldens.js
const fs = require("fs");
const path = require("path");
const {Tokenizer} = require("tokenizers");

const space = "\u2581";
const text = path.join(__dirname, "../text/genesis.txt");
const words = fs.readFileSync(text, "utf8").split("\n").slice(0, 120).join(" ").split(" ")
    .map((word) => space + word);

/// The most frequent pairs of neighbours, joined one after the other.
function trainMerges(count) {
  let counted = new Map();
  for (const word of words) counted.set(word, (counted.get(word) ?? 0) + 1);
  let split = [...counted].map(([word, times]) => [[...word], times]);
  const merges = [];
  while (merges.length < count) {
    const pairs = new Map();
    for (const [word, times] of split) {
      for (let i = 0; i + 1 < word.length; ++i) {
        const pair = word[i] + " " + word[i + 1];
        pairs.set(pair, (pairs.get(pair) ?? 0) + times);
      }
    }
    const [best] = [...pairs].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))[0];
    merges.push(best);
    const [left, right] = best.split(" ");
    for (const [word] of split) {
      for (let i = 0; i + 1 < word.length; ++i) {
        if (word[i] === left && word[i + 1] === right) word.splice(i, 2, left + right);
      }
    }
  }
  return merges;
}

// GPT-2's characters for the bytes.
function byteCharacters() {
  const printable = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  return Array.from({length: 256}, (_, b) => String.fromCharCode(printable(b) ? b : next++));
}

const added = (id, content, flags = {}) => ({
  id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: false,
  ...flags,
});
const specials = [added(0, "<unk>", {special: true}), added(1, "<s>", {special: true}),
                  added(2, "</s>", {special: true})];
const replace = (from, to) => ({type: "Replace", pattern: {String: from}, content: to});
const sequence = (key, list) => ({type: "Sequence", [key]: list});
const metaspace = (scheme, split) => (
    {type: "Metaspace", replacement: space, prepend_scheme: scheme, split});
const byteLevel = (prefix, regex) => (
    {type: "ByteLevel", add_prefix_space: prefix, trim_offsets: true, use_regex: regex});
const split = (pattern, behavior, invert) => ({type: "Split", pattern, behavior, invert});

function base(vocab, merges, preTokenizer, normalizer, decoder) {
  return {
    version: "1.0", truncation: null, padding: null, added_tokens: specials, normalizer,
    pre_tokenizer: preTokenizer, post_processor: null, decoder,
    model: {type: "BPE", dropout: null, unk_token: null, continuing_subword_prefix: null,
            end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, ignore_merges: false,
            vocab, merges},
  };
}

const merges = trainMerges(160);
// As Llama 2's is: control tokens, bytes, then pieces.
function characters() {
  const vocab = {"<unk>": 0, "<s>": 1, "</s>": 2};
  const add = (token) => { vocab[token] ??= Object.keys(vocab).length; };
  for (let b = 0; b < 256; ++b) add("<0x" + b.toString(16).toUpperCase().padStart(2, "0") + ">");
  for (const c of space + "\n.,;:!?'()0123456789<>/|" +
       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ\u00e9\u4e16") add(c);
  for (const merge of merges) add(merge.replace(" ", ""));
  const json = base(vocab, merges, null,
                    sequence("normalizers", [{type: "Prepend", prepend: space}, replace(" ", space)]),
                    sequence("decoders", [replace(space, " "), {type: "ByteFallback"},
                                          {type: "Fuse"},
                                          {type: "Strip", content: " ", start: 1, stop: 0}]));
  Object.assign(json.model, {unk_token: "<unk>", fuse_unk: true, byte_fallback: true});
  return json;
}
function bytes() {
  const vocab = {"<unk>": 0, "<s>": 1, "</s>": 2};
  const add = (token) => { vocab[token] ??= Object.keys(vocab).length; };
  byteCharacters().forEach(add);
  const ours = merges.map((merge) => merge.replaceAll(space, "\u0120"));
  for (const merge of ours) add(merge.replace(" ", ""));
  return base(vocab, ours, byteLevel(false, true), null, byteLevel(false, true));
}
function unigram() {
  const json = characters();
  const vocab = [];
  for (const [token, id] of Object.entries(json.model.vocab)) {
    vocab[id] = [token, id < 259 ? 0 : -Math.log(id) - ((id * 7919) % 97) / 50];
  }
  json.model = {type: "Unigram", unk_id: 0, byte_fallback: true, vocab};
  return json;
}
const bases = {characters: characters(), bytes: bytes(), unigram: unigram()};

const named = (first) => [
  ...specials, added(first, "<|l|>", {lstrip: true, special: true}),
  added(first + 1, "<|r|>", {rstrip: true, special: true}),
  added(first + 2, "<|lr|>", {lstrip: true, rstrip: true}),
  added(first + 3, "wzrd", {single_word: true}), added(first + 4, "nzrm", {normalized: true}),
  added(first + 5, "   ", {normalized: true}), added(first + 6, "\u4e16\u4e16", {single_word: true}),
];
const sizeOf = (name) => Object.keys(bases[name].model.vocab).length;
const cases = [];
const put = (name, on, patch) => cases.push({name, base: on, patch});
put("llama 2", "characters", {});
put("gemma", "characters", {normalizer: replace(" ", space), decoder: sequence("decoders", [
  replace(space, " "), {type: "ByteFallback"}, {type: "Fuse"}])});
put("gemma 3", "characters", {
  normalizer: replace(" ", space),
  pre_tokenizer: split({String: " "}, "MergedWithPrevious", false),
  decoder: sequence("decoders", [replace(space, " "), {type: "ByteFallback"}, {type: "Fuse"}]),
});
for (const scheme of ["always", "first", "never"]) {
  for (const cut of [true, false]) {
    put(`metaspace ${scheme} ${cut}`, "characters", {
      normalizer: null, pre_tokenizer: metaspace(scheme, cut),
      decoder: sequence("decoders", [{type: "ByteFallback"}, metaspace(scheme, cut)]),
    });
  }
}
const old = {type: "Metaspace", replacement: space, add_prefix_space: true};
put("older metaspace", "characters", {normalizer: null, pre_tokenizer: old, decoder: old});
put("unknown", "characters", {model: {byte_fallback: false}});
put("unknown one by one", "characters", {model: {byte_fallback: false, fuse_unk: false}});
const fewer = {};
for (let b = 0x80; b < 0xC0; ++b) fewer["<0x" + b.toString(16).toUpperCase() + ">"] = null;
put("some bytes", "characters", {model: {vocab: fewer}});
put("some bytes, one by one", "characters", {model: {vocab: fewer, fuse_unk: false}});
put("whole words", "characters", {
  normalizer: null, pre_tokenizer: metaspace("always", true),
  model: {ignore_merges: true, merges: merges.slice(0, 40)},
});
put("compatible", "characters", {normalizer: sequence("normalizers", [
  {type: "NFKC"}, {type: "Lowercase"}, {type: "Strip", strip_left: true, strip_right: false},
  {type: "Replace", pattern: {Regex: "\\s+"}, content: " "}, replace(" ", space)])});
put("without accents", "characters", {normalizer: sequence("normalizers", [
  {type: "NFD"}, {type: "StripAccents"}, {type: "Strip", strip_left: false, strip_right: true},
  {type: "Prepend", prepend: space}, replace(" ", space)])});
put("names", "characters", {added_tokens: named(sizeOf("characters"))});
put("names, metaspace", "characters", {
  added_tokens: named(sizeOf("characters")), normalizer: null,
  pre_tokenizer: metaspace("first", true),
  decoder: sequence("decoders", [{type: "ByteFallback"}, metaspace("first", true)]),
});
put("gpt-2", "bytes", {});
put("names, bytes", "bytes", {added_tokens: named(sizeOf("bytes"))});
put("prefix", "bytes", {pre_tokenizer: byteLevel(true, false)});
put("of no consequence", "bytes", {
  model: {byte_fallback: true, unk_token: "<unk>", fuse_unk: true, dropout: 0}});
const alphabet = byteCharacters();
const missing = {};
for (const b of [0x04, 0xC3, 0xA9]) missing[alphabet[b]] = null;
put("without some bytes", "bytes", {model: {unk_token: "<unk>", vocab: missing}});
put("without some bytes, fused", "bytes", {
  model: {unk_token: "<unk>", fuse_unk: true, vocab: missing}});
put("bytes by the normalizer", "bytes", {
  normalizer: sequence("normalizers", [{type: "NFC"}, {type: "ByteLevel"}]), pre_tokenizer: null});
const cut = (list) => ({pre_tokenizer: sequence("pretokenizers", [...list, byteLevel(false, false)])});
for (const behavior of
     ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]) {
  for (const invert of [false, true]) {
    put(`split ${behavior} ${invert}`, "bytes",
        cut([split({Regex: "[0-9]{2}|\\w|\\s$|^."}, behavior, invert)]));
    put(`split text ${behavior} ${invert}`, "characters",
        {pre_tokenizer: split({String: space}, behavior, invert)});
  }
  put(`punctuation ${behavior}`, "bytes",
      cut([{type: "Punctuation", behavior}, {type: "Digits", individual_digits: false}]));
}
put("words", "bytes", cut([{type: "Whitespace"}]));
put("between blanks", "bytes",
    cut([{type: "WhitespaceSplit"}, {type: "CharDelimiterSplit", delimiter: "a"}]));
put("patterns", "bytes", cut([
  split({Regex: "[\r\n]"}, "Isolated", false),
  split({Regex: "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"}, "Isolated", false),
  split({Regex: "\\s+$"}, "Isolated", false), split({Regex: "[\\u4e00-\\u9fa5]+"}, "Isolated", false),
  {type: "Digits", individual_digits: true}]));
put("unigram", "unigram", {});
put("unigram, unknown", "unigram", {model: {byte_fallback: false}});
put("unigram, metaspace", "unigram", {normalizer: null, pre_tokenizer: metaspace("always", true),
                                      decoder: metaspace("always", true)});

const lines = [
  "", " ", "   ", "\n", "In the beginning God created the heaven and the earth.",
  "  leading, trailing   ", "And God said,\tLet there be light:\n\nand there was light.\n",
  "tabs\tand\u00a0hard\u3000spaces\u2003here\u180eand\u200cthere", space + "a " + space + space + " b",
  "\u00e9t\u00e9 \u00c9T\u00c9 e\u0301te\u0301 na\u00efve stra\u00dfe \u0130stanbul \u01c5",
  "\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u3053\u3093\u306b\u3061\u306f",
  "\u041f\u0440\u0438\u0432\u0435\u0442, \u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947",
  "\ud83d\ude00\ud83d\udc68\u200d\ud83d\udc69 and \ud83c\udde9\ud83c\uddea", "\u00b2\u00bd\u2163 \u0661\u0662 12345 3.14",
  "it's DON'T we'Re!!! (what?) a--b...", "for (int i = 0; i < n; ++i) {\n\tx[i] += 1;  // y\r\n}",
  "a<s>b</s> c <s>  </s>d", "x <|l|> y  <|r|>  z \t<|lr|> w<|lr|>", "<|r|>   <|l|>\u4e16\u4e16 \u4e16\u4e16x",
  "wzrd awzrd wzrd. nzrm anzrm   nzrm", "ab12cd345\u00e9f  6 ", "\ufb01\u24d0\u2460 \u212b",
];

/// The tokenizer.json of a case: a patch's parts replace the base's, but for `model`, whose tokens
/// and rules it changes one by one. Leaves out merges of tokens that are gone.
function jsonOf(each) {
  const json = structuredClone(bases[each.base]);
  const {model = {}, ...parts} = each.patch;
  Object.assign(json, parts);
  const {vocab, ...rules} = model;
  Object.assign(json.model, rules);
  if (vocab === undefined) return json;
  for (const token of Object.keys(vocab)) delete json.model.vocab[token];
  json.model.merges = json.model.merges.filter((merge) => (
      [...merge.split(" "), merge.replace(" ", "")].every((token) => token in json.model.vocab)));
  model.merges = json.model.merges;
  return json;
}

async function main() {
  for (const each of cases) {
    const tokenizer = Tokenizer.fromString(JSON.stringify(jsonOf(each)));
    each.ids = [];
    each.texts = [];
    for (const line of lines) {
      const ids = (await tokenizer.encode(line, null, {addSpecialTokens: false})).getIds();
      each.ids.push(ids);
      each.texts.push(await tokenizer.decode(ids, true));
    }
  }
  const rows = (list) => list.map((each) => JSON.stringify(each)).join(",\n");
  const out = `{"lines": ${JSON.stringify(lines)},\n"bases": ${JSON.stringify(bases)},\n` +
      `"cases": [\n${rows(cases)}\n]}\n`;
  fs.writeFileSync(path.join(__dirname, "goldens.json"), out);
}

main();
