import type { Method, Operation } from "./document";

// A Command is how the command line sends an operation.
export type Command = { noun: string; verb: string; ifMatch?: boolean; secrets?: Record<string, string> };

export type Commands = Record<string, Command>;

type Request = { method: Method; path: string; body?: unknown; etag?: string };

// quote returns a text as one word of a shell.
function quote(text: string): string {
  return /^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

// toCurl returns the command that sends the same request with curl.
export function toCurl({ method, path, body, etag }: Request): string {
  const lines = [`curl -X ${method.toUpperCase()} ${quote(location.origin + path)}`, `-H "Authorization: Bearer $IRONPLANE_KEY"`];
  if (etag) lines.push(`-H ${quote(`If-Match: ${etag}`)}`);
  if (body !== undefined) lines.push(`-H 'Content-Type: application/json'`, `-d ${quote(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

// toCommand returns the command that sends the same request with ironplane. No argument may have a secret: the first comes from a
// prompt or standard input, the others come from files.
export function toCommand(command: Command, operation: Operation, { path, body, etag }: Request): { text: string; readsFiles: boolean } {
  const ids = idsOf(operation, path).map(quote);
  const [rest, flags] = withoutSecrets(body, command.secrets ?? {});
  const options = flags.map((flag, i) => `--${flag} ${i === 0 ? "-" : `@${flag}.txt`}`);
  if (rest !== undefined && Object.keys(rest as object).length > 0) options.unshift(`--json ${quote(JSON.stringify(rest))}`);
  if (etag && command.ifMatch) options.push(`--if-match ${quote(etag)}`);
  const words = ["ironplane", command.noun, command.verb];
  if (ids.some((id) => id.startsWith("-"))) options.push(`-- ${ids.join(" ")}`);
  else words.push(...ids);
  return { text: [words.join(" "), ...options].join(" \\\n  "), readsFiles: flags.length > 1 };
}

// idsOf returns the ids in a path. The last part may have several, separated by commas.
function idsOf(operation: Operation, path: string): string[] {
  const parts = path.split("/");
  const ids = operation.path.split("/").flatMap((name, i) => (name.startsWith("{") ? [decodeURIComponent(parts[i]!)] : []));
  return operation.several ? ids.flatMap((id, i) => (i === ids.length - 1 ? id.split(",") : id)) : ids;
}

// withoutSecrets returns a body without its secrets, and the flags of those that it had.
function withoutSecrets(body: unknown, secrets: Record<string, string>, prefix = ""): [unknown, string[]] {
  if (typeof body !== "object" || body === null || Array.isArray(body)) return [body, []];
  const [rest, flags]: [Record<string, unknown>, string[]] = [{}, []];
  for (const [name, value] of Object.entries(body)) {
    const flag = secrets[prefix + name];
    if (flag && typeof value === "string") {
      flags.push(flag);
      continue;
    }
    const [kept, inner] = withoutSecrets(value, secrets, `${prefix}${name}.`);
    flags.push(...inner);
    if (inner.length === 0 || Object.keys(kept as object).length > 0) rest[name] = kept;
  }
  return [rest, flags];
}
