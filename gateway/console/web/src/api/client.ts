import createClient from "openapi-fetch";
import type { paths, components } from "./schema";
import type { Method } from "./document";

export type Problem = components["schemas"]["Problem"];
export type FieldError = components["schemas"]["Field"];

// ProblemError is an answer with an error, or no answer at all (status 0).
export class ProblemError extends Error {
  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
    readonly retryAfter = 0,
  ) {
    super(problem.detail ?? `The server answered ${status}.`);
  }
  get fields(): FieldError[] {
    return this.problem.errors ?? [];
  }
}

export type Answer<T> = { data: T; etag?: string; next?: string; prev?: string; total?: string };

export type Sent = {
  query?: Record<string, string | undefined>;
  body?: unknown;
  ifMatch?: string;
  idempotencyKey?: string;
  type?: string;
  signal?: AbortSignal;
};

// header shows the gateway that a request is the console's own: the session's cookie counts only with it.
export const header = { "X-Ironplane-Console": "1" };

// api is the typed client. The generic pages send their requests through it as well.
export const api = createClient<paths>({ baseUrl: location.origin, credentials: "same-origin", headers: header, fetch: fetchWithRetry });

// An answer with an error is thrown as a ProblemError, so that callers see successes alone.
api.use({
  async onResponse({ response }) {
    if (!response.ok) await read(response.clone());
  },
});

// json returns the JSON of an answer. Lists can also be CSV, which no page asks for by the typed client.
export async function json<T>(answer: Promise<{ data?: T }>): Promise<Exclude<T, string | undefined>> {
  return (await answer).data as Exclude<T, string | undefined>;
}

const maxAttempts = 3;

// fetchWithRetry repeats a request that did no harm the first time: reads, and changes with an Idempotency-Key.
async function fetchWithRetry(request: Request): Promise<Response> {
  const canRepeat = request.method === "GET" || request.headers.has("Idempotency-Key");
  for (let attempt = 1; ; attempt++) {
    const isLast = !canRepeat || attempt >= maxAttempts;
    let seconds = attempt;
    try {
      const response = await fetch(request.clone());
      if (response.status !== 503 || isLast) {
        connection.set(true);
        return response;
      }
      seconds = Math.min(Number(response.headers.get("Retry-After")) || attempt, 10);
    } catch (error) {
      if (request.signal.aborted) throw error;
      connection.set(false);
      if (isLast) throw new ProblemError(0, { detail: "The server cannot be reached." });
    }
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}

// send sends a request to a path of the API. It throws a ProblemError unless the answer is a success.
export async function send<T>(method: Method, path: string, sent: Sent = {}): Promise<Answer<T>> {
  const headers: Record<string, string> = { ...header, Accept: "application/json" };
  if (sent.ifMatch) headers["If-Match"] = sent.ifMatch;
  if (sent.idempotencyKey) headers["Idempotency-Key"] = sent.idempotencyKey;
  if (sent.body !== undefined) headers["Content-Type"] = sent.type ?? "application/json";
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(sent.query ?? {})) if (value !== undefined && value !== "") query.set(name, value);
  const response = await fetchWithRetry(
    new Request(path + (query.size ? `?${query}` : ""), {
      method: method.toUpperCase(),
      headers,
      credentials: "same-origin",
      cache: "no-store",
      signal: sent.signal,
      body: sent.body === undefined ? undefined : typeof sent.body === "string" ? sent.body : JSON.stringify(sent.body),
    }),
  );
  return read<T>(response);
}

async function read<T>(response: Response): Promise<Answer<T>> {
  const text = await response.text();
  let body: unknown;
  try {
    body = text ? JSON.parse(text) : undefined;
  } catch {
    body = undefined;
  }
  if (!response.ok) {
    if (response.status === 401) unauthorized.set(true);
    throw new ProblemError(response.status, (body ?? {}) as Problem, Number(response.headers.get("Retry-After")) || 0);
  }
  return {
    data: body as T,
    etag: response.headers.get("ETag") ?? undefined,
    total: response.headers.get("X-Total-Count") ?? undefined,
    ...cursors(response.headers.get("Link") ?? ""),
  };
}

// cursors returns the positions of the next and the previous page from a Link header.
function cursors(link: string): { next?: string; prev?: string } {
  const found: Record<string, string> = {};
  for (const [, url, rel] of link.matchAll(/<([^>]*)>; *rel="?(\w+)"?/g)) {
    const cursor = new URL(url!, location.origin).searchParams.get("cursor");
    if (cursor && rel) found[rel] = cursor;
  }
  return { next: found.next, prev: found.prev };
}

// A Signal is a value that components follow.
export class Signal<T> {
  private readonly listeners = new Set<() => void>();
  constructor(private value: T) {}
  get = (): T => this.value;
  set(value: T): void {
    if (value === this.value) return;
    this.value = value;
    for (const listener of this.listeners) listener();
  }
  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
}

// connection says whether the last request reached the server; unauthorized, that the session has ended.
export const connection = new Signal(true);
export const unauthorized = new Signal(false);

// newKey returns a value for Idempotency-Key that nobody guesses. randomUUID is missing on pages without TLS.
export function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
