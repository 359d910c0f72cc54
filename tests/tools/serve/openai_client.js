// What the npm package openai sees of a server: one scenario, whose failure is an exception.
//
//   node openai_client.js FOLDER URL KEY SCENARIO      the package is in FOLDER/node_modules
const assert = require("node:assert/strict");
const path = require("node:path");

const [folder, url, key, scenario] = process.argv.slice(2);
const OpenAI = require(path.join(path.resolve(folder), "node_modules/openai"));

const kModel = "tiny";
const kPatience = 1200;  // times 50 ms, for what the server does soon
const kEndless = 200000;  // tokens: more than any scenario waits for

const clientWith = (options) => new OpenAI({baseURL: url + "/v1", apiKey: key, ...options});
const client = clientWith({maxRetries: 0});

const completion = (more) => ({
  model: kModel, prompt: "In the beginning", max_tokens: 24, temperature: 0, ignore_eos: true,
  ...more,
});
const chat = (more) => ({
  model: kModel,
  messages: [{role: "system", content: "Be kind."}, {role: "user", content: "Hello"}],
  max_completion_tokens: 24, temperature: 0, ignore_eos: true,
  ...more,
});

/** The chunks of a stream. */
async function all(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

/** The value of a line of /metrics. */
async function metric(name) {
  const answer = await fetch(url + "/metrics", {headers: {Authorization: "Bearer " + key}});
  const line = (await answer.text()).split("\n").find((each) => each.startsWith(name + " "));
  assert.ok(line, "no metric " + name);
  return Number(line.split(" ")[1]);
}

async function soon(what, condition) {
  for (let i = 0; i < kPatience; ++i) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail("waited in vain: " + what);
}

async function nothingIsLeft() {
  for (const name of ["trimtab_requests_in_flight", "trimtab_sequences_running",
                      "trimtab_requests_waiting", "trimtab_cache_blocks_used"]) {
    await soon(name + " is 0", async () => await metric(name) === 0);
  }
}

/** That `promise` fails with the package's error `kind`, and with one clear line. */
async function refused(promise, kind, status, words) {
  const error = await promise.then(() => assert.fail("it was answered"), (reason) => reason);
  assert.ok(error instanceof kind, String(error));
  assert.equal(error.status, status);
  assert.ok(error.message.includes(words), error.message);
}

const scenarios = {
  async lists() {
    const models = await all(client.models.list());
    assert.deepEqual(models.map((each) => each.id), [kModel]);
    assert.equal(models[0].object, "model");
    assert.deepEqual(await client.models.retrieve(kModel), models[0]);
  },

  async completes() {
    const whole = await client.completions.create(completion());
    assert.equal(whole.object, "text_completion");
    assert.equal(whole.choices[0].finish_reason, "length");
    assert.deepEqual(whole.usage, {prompt_tokens: 16, completion_tokens: 24, total_tokens: 40});
    const text = whole.choices[0].text;
    assert.ok(text.length > 0);

    const chunks = await all(await client.completions.create(
        completion({stream: true, stream_options: {include_usage: true}})));
    const last = chunks.pop();
    assert.deepEqual(last.choices, []);
    assert.deepEqual(last.usage, whole.usage);
    assert.equal(new Set(chunks.map((each) => each.id)).size, 1);
    assert.equal(chunks.map((each) => each.choices[0].text).join(""), text);
    assert.equal(chunks.at(-1).choices[0].finish_reason, "length");

    const draw = async () => (await client.completions.create(
        completion({temperature: 1, seed: 5, top_p: 0.9}))).choices[0].text;
    assert.equal(await draw(), await draw());

    const {logprobs} = (await client.completions.create(completion({logprobs: 2}))).choices[0];
    assert.equal(logprobs.tokens.length, 24);
    assert.ok(logprobs.token_logprobs.every((each) => each <= 0));
    assert.ok(logprobs.top_logprobs.every((each) => Object.keys(each).length > 0));

    const stop = text.slice(3, 5);
    const short = await client.completions.create(completion({stop: [stop]}));
    assert.equal(short.choices[0].text, text.slice(0, text.indexOf(stop)));
    assert.equal(short.choices[0].finish_reason, "stop");
    await nothingIsLeft();
  },

  async chats() {
    const whole = await client.chat.completions.create(chat({logprobs: true, top_logprobs: 2}));
    assert.equal(whole.object, "chat.completion");
    const [choice] = whole.choices;
    assert.equal(choice.message.role, "assistant");
    assert.equal(choice.finish_reason, "length");
    assert.equal(choice.logprobs.content.length, 24);
    assert.equal(choice.logprobs.content[0].top_logprobs.length, 2);
    assert.equal(whole.usage.completion_tokens, 24);

    const chunks = await all(await client.chat.completions.create(chat({stream: true})));
    assert.equal(chunks[0].choices[0].delta.role, "assistant");
    assert.equal(chunks.map((each) => each.choices[0].delta.content ?? "").join(""),
                 choice.message.content);
    assert.equal(chunks.at(-1).choices[0].finish_reason, "length");

    // The package puts an answer together itself, and objects where chunks do not fit.
    const runner = client.beta.chat.completions.stream(chat());
    const deltas = [];
    runner.on("content", (delta) => deltas.push(delta));
    const final = await runner.finalChatCompletion();
    assert.equal(final.choices[0].message.content, choice.message.content);
    assert.equal(deltas.join(""), choice.message.content);

    // What it has answered goes into the next question.
    const more = [choice.message, {role: "user", content: [{type: "text", text: "And now?"}]}];
    const next = await client.chat.completions.create(
        chat({messages: [...chat().messages, ...more]}));
    assert.ok(next.usage.prompt_tokens > whole.usage.prompt_tokens);
    await nothingIsLeft();
  },

  async embeds() {
    const {data} = await client.embeddings.create({model: kModel, input: ["one", "two"]});
    assert.equal(data.length, 2);
    const length = Math.hypot(...data[0].embedding);
    assert.ok(Math.abs(length - 1) < 1e-3, String(length));
    await nothingIsLeft();
  },

  async echoes() {
    const {choices} = await client.completions.create(
        completion({prompt: ["ab", "cd"], echo: true, logprobs: 1, max_tokens: 0}));
    assert.deepEqual(choices.map((each) => each.text), ["ab", "cd"]);
    assert.equal(choices[1].logprobs.token_logprobs[0], null);
    assert.ok(choices[1].logprobs.token_logprobs[1] < 0);
    await nothingIsLeft();
  },

  async responds() {
    const asked = {model: kModel, input: "Hello", max_output_tokens: 8, temperature: 0};
    const whole = await client.responses.create(asked);
    assert.equal(whole.object, "response");
    const events = await all(await client.responses.create({...asked, stream: true}));
    assert.equal(events[0].type, "response.created");
    assert.equal(events.filter((each) => each.type === "response.output_text.delta")
                     .map((each) => each.delta).join(""), whole.output_text);
    await nothingIsLeft();
  },

  async callsTools() {
    const parameters = {type: "object", properties: {yes: {$ref: "#/$defs/Answer"}},
                        required: ["yes"], additionalProperties: false,
                        $defs: {Answer: {type: "boolean"}}};
    const asked = chat({ignore_eos: false, max_completion_tokens: 200, tool_choice: "required",
                        tools: [{type: "function", function: {name: "answer", parameters}}]});
    const whole = await client.chat.completions.create(asked);
    assert.equal(whole.choices[0].finish_reason, "tool_calls");
    const [call] = whole.choices[0].message.tool_calls;
    assert.equal(call.function.name, "answer");
    assert.equal(typeof JSON.parse(call.function.arguments).yes, "boolean");
    const final = await client.beta.chat.completions.stream(asked).finalChatCompletion();
    assert.equal(final.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
    await nothingIsLeft();
  },

  async writesJson() {
    const schema = {type: "object", properties: {yes: {type: "boolean"}}, required: ["yes"],
                    additionalProperties: false};
    const whole = await client.chat.completions.create(chat({
      ignore_eos: false, max_completion_tokens: 200,
      response_format: {type: "json_schema", json_schema: {name: "answer", schema, strict: true}},
    }));
    assert.equal(typeof JSON.parse(whole.choices[0].message.content).yes, "boolean");
    await nothingIsLeft();
  },

  async aborts() {
    const before = await metric("trimtab_requests_aborted_total");
    const streams = [
      await client.completions.create(completion({max_tokens: kEndless, stream: true})),
      await client.chat.completions.create(
          chat({max_completion_tokens: kEndless, stream: true, stop: ["no such text"]})),
    ];
    for (const stream of streams) {
      let chunks = 0;
      for await (const chunk of stream) {
        assert.equal(chunk.choices[0].finish_reason, null);
        if (++chunks === 3) stream.controller.abort();
      }
    }
    await nothingIsLeft();
    const controller = new AbortController();
    const whole =
        client.completions.create(completion({max_tokens: kEndless}), {signal: controller.signal});
    await soon("it runs", async () => await metric("trimtab_sequences_running") === 1);
    controller.abort();
    await assert.rejects(whole, {name: "AbortError"});
    await soon("three are counted",
               async () => await metric("trimtab_requests_aborted_total") === before + 3);
    await nothingIsLeft();
  },

  async refuses() {
    const {BadRequestError, NotFoundError, APIError} = OpenAI;
    const completions = (more) => client.completions.create(completion(more));
    const chats = (more) => client.chat.completions.create(chat(more));
    await refused(completions({model: "gpt-4"}), NotFoundError, 404, "expected 'tiny'");
    await refused(chats({model: "gpt-4", stream: true}), NotFoundError, 404, "expected 'tiny'");
    await refused(client.models.retrieve("other"), NotFoundError, 404, "expected 'tiny'");
    await refused(completions({temperature: -1}), BadRequestError, 400, "$.temperature");
    await refused(completions({n: 200}), BadRequestError, 400, "$.n");
    await refused(completions({suffix: "b"}), BadRequestError, 400, "$.suffix");
    await refused(chats({messages: []}), BadRequestError, 400, "$.messages");
    await refused(chats({messages: [{role: "robot", content: ""}]}),
                  BadRequestError, 400, "$.messages[0].role");
    await refused(chats({tools: [{type: "function", function: {name: "f", parameters: {}}}]}),
                  BadRequestError, 400, "$.tools");
    await refused(client.post("/completions", {body: Buffer.from("{\"model\": ")}),
                  BadRequestError, 400, "body:1:");
    await refused(completions({prompt: "x".repeat(2 * kEndless)}),
                  BadRequestError, 400, "expected fewer than");
    // A connection that idled while a large body was made may be gone: then it is tried again.
    const large = clientWith({maxRetries: 2});
    for (const mebibytes of [1, 16]) {  // beside the rest of a body, of which 1 is taken
      const prompt = "x".repeat(mebibytes << 20);
      await refused(large.completions.create(completion({prompt})), APIError, 413, "too large");
    }
    assert.equal((await completions()).choices[0].finish_reason, "length");
    await nothingIsLeft();
  },

  async comesTogether() {
    const prompts = Array.from({length: 40}, (_, i) => `Client ${i % 10} says`);
    const alone = [];
    for (const prompt of prompts.slice(0, 10)) {
      alone.push((await client.completions.create(completion({prompt}))).choices[0].text);
    }
    // More than the server takes at once: who is refused comes again when it was told.
    const patient = clientWith({maxRetries: kPatience});
    const texts = await Promise.all(prompts.map(async (prompt, i) => {
      if (i % 2 === 0) {
        return (await patient.completions.create(completion({prompt}))).choices[0].text;
      }
      const stream = await patient.completions.create(completion({prompt, stream: true}));
      return (await all(stream)).map((each) => each.choices[0].text).join("");
    }));
    assert.deepEqual(texts, prompts.map((_, i) => alone[i % 10]));
    await nothingIsLeft();
  },

  async needsItsKey() {
    for (const apiKey of ["another", key + "x", key.slice(1)]) {
      const stranger = clientWith({apiKey, maxRetries: 0});
      for (const request of [() => stranger.models.list(),
                             () => stranger.completions.create(completion()),
                             () => stranger.chat.completions.create(chat({stream: true}))]) {
        await refused(request(), OpenAI.AuthenticationError, 401, "key");
      }
    }
    await scenarios.lists();
  },
};

scenarios[scenario]().catch((error) => {
  console.error(error);
  process.exit(1);
});
