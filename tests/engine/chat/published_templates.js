// Renders conversations with the chat templates that packages of npm carry, by @huggingface/jinja.
// Arguments: the folder of node_modules. Prints a list of {name, template, context, output}.
const fs = require('fs');
const path = require('path');

const modules = process.argv[2];
const {Template} = require(path.join(modules, '@huggingface/jinja'));

const templates = {};
for (const name of fs.readdirSync(path.join(modules, '@lenml'))) {
  const file = path.join(modules, '@lenml', name, 'models', 'tokenizer_config.json');
  if (!fs.existsSync(file)) continue;
  const template = JSON.parse(fs.readFileSync(file, 'utf8')).chat_template;
  if (typeof template === 'string') templates[name] = template;
}
// The published templates beside their counterparts for another server, in a list of literals.
const map = path.join(modules, '@huggingface/ollama-utils/src/chat-template-automap.ts');
const source = fs.readFileSync(map, 'utf8');
const list = source.slice(source.indexOf('= [') + 2).replace(/;\s*$/, '');
for (const {model, gguf} of Function('return ' + list)()) templates[model] = gguf;

const say = (role, content) => ({role, content});
const conversations = [
  [say('user', 'Hi')],
  [say('system', 'Be kind.'), say('user', ' Hi there '), say('assistant', 'Hello!'), say('user', 'Bye')],
  [say('user', 'a'), say('assistant', 'b'), say('user', 'c'), say('assistant', 'd')],
  [say('user', 'a'), say('user', 'b')],
];
const cases = [];
for (const [name, template] of Object.entries(templates)) {
  if (template.includes('strftime_now')) continue;  // the two would write different times
  for (const messages of conversations) {
    for (const add_generation_prompt of [true, false]) {
      const context = {messages, add_generation_prompt, bos_token: '<s>', eos_token: '</s>', tools: null};
      let output = null;  // it refuses, or does not know something
      try {
        output = new Template(template).render(context);
      } catch (fault) {
      }
      cases.push({name, template, context, output});
    }
  }
}
process.stdout.write(JSON.stringify(cases));
