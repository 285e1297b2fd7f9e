/**
 * Talks to a pool through the AI SDK: prints the reply to each line of the user, as JSON. Every
 * second reply is not streamed.
 *
 *     node ai_sdk_talk.mjs URL KEY '[{"text": "Hello", "options": {}}]'
 */

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const [url, apiKey, lines] = process.argv.slice(2);
const model = createOpenAICompatible({ name: "pool", baseURL: `${url}/v1`, apiKey })("default");
const messages = [];
for (const [index, { text, options }] of JSON.parse(lines).entries()) {
  messages.push({ role: "user", content: text });
  const asked = { model, messages, maxRetries: 0, providerOptions: { pool: { turnwise: options } } };
  const answer = index % 2 ? await generateText(asked) : streamText(asked);
  const reply = await answer.text;
  messages.push({ role: "assistant", content: reply });
  console.log(JSON.stringify(reply));
}
