// Writes the types of the API's requests and answers into src/schema.ts:
//   node generate.mjs http://127.0.0.1:8000
import { writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const url = process.argv[2] ?? "http://127.0.0.1:8000";
const document = await (await fetch(`${url}/openapi.json`)).json();
// The client names the routes itself; only the values are of use.
const types = await openapiTS({ ...document, paths: {} }, { defaultNonNullable: false });
const note = "// Generated from the service's OpenAPI document by generate.mjs: do not edit.\n";
await writeFile(new URL("src/schema.ts", import.meta.url), note + astToString(types));
