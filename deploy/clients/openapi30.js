// Converts an API document from OpenAPI 3.1 to 3.0, which the generator for Python needs.
const { readFileSync, writeFileSync } = require("node:fs");

function older(node) {
  if (Array.isArray(node)) return node.map(older);
  if (node === null || typeof node !== "object") return node;
  if (node.$ref) return { $ref: node.$ref }; // 3.0 allows nothing beside it
  const { examples, identifier, anyOf, ...rest } = node;
  const written = Object.fromEntries(Object.entries(rest).map(([name, value]) => [name, older(value)]));
  if (Array.isArray(written.type)) Object.assign(written, nullable({ type: written.type.find((t) => t !== "null") }));
  if (anyOf) Object.assign(written, nullable({ allOf: anyOf.filter((s) => s.type !== "null").map(older) }));
  if (examples) written.example = examples[0];
  return written;
}

const nullable = (schema) => ({ ...schema, nullable: true });

const [, , from, to] = process.argv;
const { webhooks, ...document } = JSON.parse(readFileSync(from)); // 3.0 has no webhooks
writeFileSync(to, JSON.stringify({ ...older(document), openapi: "3.0.3" }));
