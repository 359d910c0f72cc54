// Uses a server as npm packages that speak OpenAI's API do: one scenario, whose failure is an
// exception. The packages are @ai-sdk/openai-compatible with ai, and @langchain/openai.
//
//   node other_clients.js FOLDER URL KEY SCENARIO      the packages are in FOLDER/node_modules
const assert = require("node:assert/strict");
const path = require("node:path");
const {createRequire} = require("node:module");

const [folder, url, key, scenario] = process.argv.slice(2);
const take = createRequire(path.join(path.resolve(folder), "clients.js"));
const {z} = take("zod");

const kModel = "tiny";
const kTokens = 24;
const kRoom = 400;  // tokens, for answers that a grammar ends
const Answer = z.object({yes: z.boolean()}).strict();

/** Asks by the AI SDK. */
function aiSdk() {
  const ai = take("ai");
  const {createOpenAICompatible} = take("@ai-sdk/openai-compatible");
  const provider = createOpenAICompatible({
    name: "trimtab", baseURL: url + "/v1", apiKey: key, includeUsage: true,
    supportsStructuredOutputs: true,
  });
  const asked = {model: provider(kModel), temperature: 0, maxRetries: 0};
  return {ai, provider, asked};
}

/** Asks by LangChain. */
function langChain(more) {
  const {ChatOpenAI} = take("@langchain/openai");
  return new ChatOpenAI({
    model: kModel, apiKey: key, temperature: 0, maxTokens: kTokens, maxRetries: 0,
    configuration: {baseURL: url + "/v1"}, ...more,
  });
}

const kTool = {name: "answer", description: "Answers.", schema: Answer};

const scenarios = {
  async aiSdkWrites() {
    const {ai, asked} = aiSdk();
    const short = {...asked, maxOutputTokens: kTokens};
    const whole = await ai.generateText({...short, system: "Be kind.", prompt: "Hello"});
    assert.equal(whole.finishReason, "length");
    assert.equal(whole.usage.outputTokens, kTokens);
    const stream = ai.streamText({...short, system: "Be kind.", prompt: "Hello"});
    let text = "";
    for await (const delta of stream.textStream) text += delta;
    assert.equal(text, whole.text);
    assert.deepEqual(await stream.usage, whole.usage);
  },

  async aiSdkWritesObjects() {
    const {ai, asked} = aiSdk();
    const room = {...asked, maxOutputTokens: kRoom, prompt: "Is it so?", schema: Answer};
    const {object} = await ai.generateObject(room);
    assert.equal(typeof object.yes, "boolean");
    const stream = ai.streamObject(room);
    for await (const part of stream.partialObjectStream) assert.equal(typeof part, "object");
    assert.deepEqual(await stream.object, object);
  },

  async aiSdkCallsTools() {
    const {ai, asked} = aiSdk();
    const seen = [];
    const tools = {answer: ai.tool({
      description: "Answers.", inputSchema: Answer,
      execute: async (input) => { seen.push(input); return "noted"; },
    })};
    const room = {...asked, maxOutputTokens: kRoom, prompt: "Is it so?", tools};
    for (const toolChoice of ["required", {type: "tool", toolName: "answer"}]) {
      const {toolCalls, finishReason} = await ai.generateText({...room, toolChoice});
      assert.equal(finishReason, "tool-calls");
      assert.equal(typeof toolCalls[0].input.yes, "boolean");
    }
    assert.equal(seen.length, 2);
    const stream = ai.streamText({...room, toolChoice: "required"});
    await stream.consumeStream();
    assert.deepEqual((await stream.toolCalls)[0].input, seen[0]);
    // The call and its result are part of the next step's conversation.
    const steps = await ai.generateText({
      ...room, maxOutputTokens: kRoom, stopWhen: ai.stepCountIs(2), toolChoice: "required",
    });
    assert.equal(steps.steps.length, 2);
  },

  async aiSdkEmbeds() {
    const {ai, provider} = aiSdk();
    const {embeddings} = await ai.embedMany({
      model: provider.textEmbeddingModel(kModel), values: ["one", "two"],
    });
    assert.equal(embeddings.length, 2);
    assert.ok(Math.abs(Math.hypot(...embeddings[0]) - 1) < 1e-3);
  },

  async langChainWrites() {
    const model = langChain();
    const messages = [["system", "Be kind."], ["human", "Hello"]];
    const whole = await model.invoke(messages);
    assert.equal(whole.usage_metadata.output_tokens, kTokens);
    assert.equal(whole.response_metadata.finish_reason, "length");
    let text = "";
    for await (const chunk of await model.stream(messages)) text += chunk.content;
    assert.equal(text, whole.content);
    const again = await model.invoke([...messages, whole, ["human", "And now?"]]);
    assert.ok(again.usage_metadata.input_tokens > whole.usage_metadata.input_tokens);
    const several = await model.batch(["one", "two"]);
    assert.equal(several.length, 2);
  },

  async langChainCallsTools() {
    const {tool} = take("@langchain/core/tools");
    const {HumanMessage} = take("@langchain/core/messages");
    const answer = tool(async (input) => JSON.stringify(input), kTool);
    const model = langChain({maxTokens: kRoom}).bindTools([answer], {tool_choice: "answer"});
    const asked = [new HumanMessage("Is it so?")];
    const called = await model.invoke(asked);
    const [call] = called.tool_calls;
    assert.equal(call.name, "answer");
    assert.equal(typeof call.args.yes, "boolean");
    let streamed = null;
    for await (const chunk of await model.stream(asked)) streamed = streamed?.concat(chunk) ?? chunk;
    assert.deepEqual(streamed.tool_calls[0].args, call.args);
    const result = await answer.invoke(call);
    const next = await langChain().invoke([...asked, called, result]);
    assert.equal(typeof next.content, "string");
  },

  async langChainWritesObjects() {
    for (const method of ["jsonSchema", "functionCalling"]) {
      const model = langChain({maxTokens: kRoom}).withStructuredOutput(
          Answer, {name: "answer", method, strict: true});
      assert.equal(typeof (await model.invoke("Is it so?")).yes, "boolean", method);
    }
  },

  async langChainEmbeds() {
    const {OpenAIEmbeddings} = take("@langchain/openai");
    const model = new OpenAIEmbeddings({
      model: kModel, apiKey: key, maxRetries: 0, configuration: {baseURL: url + "/v1"},
    });
    const [one, two] = await model.embedDocuments(["one", "two"]);
    assert.equal(one.length, two.length);
    assert.ok(Math.abs(Math.hypot(...await model.embedQuery("one")) - 1) < 1e-3);
  },

  async refused() {
    const {ai, asked} = aiSdk();
    const error = await ai.generateText({...asked, prompt: "a", temperature: -1})
                      .then(() => assert.fail("it was answered"), (reason) => reason);
    assert.ok(ai.APICallError.isInstance(error), String(error));
    assert.equal(error.statusCode, 400);
    assert.ok(error.message.includes("$.temperature"), error.message);
    await assert.rejects(langChain({temperature: -1}).invoke("a"), /\$\.temperature/);
  },
};

scenarios[scenario]().catch((error) => {
  console.error(error);
  process.exit(1);
});
