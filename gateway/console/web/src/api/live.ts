import type { QueryClient, QueryKey } from "@tanstack/react-query";
import { header, Signal, unauthorized } from "./client";

// live says whether events arrive. While they do not, pages ask again now and then.
export const live = new Signal(false);

// A Message is what the tab with the stream tells the others. last is the id of the last event.
type Message = { isLive: boolean; last: string; urls?: string[]; isAll?: boolean };

const streamPath = "/event";
const silence = 30_000; // the server sends something every 15 seconds
const gatherInterval = 500;
const firstWait = 1000;
const longestWait = 30_000;

// follow reads again what the pages show when an event says that it has changed, until signal aborts. A key has one stream, so one tab
// of a browser has it, and tells the others. name is the stream's, one for each session. Pages without TLS have no locks: they poll.
export function follow(queries: QueryClient, name: string, signal: AbortSignal): void {
  if (!("locks" in navigator)) return;
  let hidden = new AbortController();
  const begin = (isFresh: boolean): void => {
    hidden = new AbortController();
    followShown(queries, name, isFresh, AbortSignal.any([signal, hidden.signal]));
  };
  // A page that was left may be kept for the way back. It must not keep the stream meanwhile.
  addEventListener("pagehide", () => hidden.abort(), { signal });
  addEventListener("pageshow", (event) => event.persisted && begin(false), { signal });
  begin(true);
}

// followShown does the same until the page is left. isFresh says that what it shows has just been read.
function followShown(queries: QueryClient, name: string, isFresh: boolean, signal: AbortSignal): void {
  const channel = new BroadcastChannel(name);
  const changed = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let last = "";
  const began = isFresh ? Date.now() : 0;
  const take = (message: Message): void => {
    live.set(message.isLive);
    last = message.last;
    if (message.isAll) void queries.invalidateQueries({ predicate: (q) => isData(q.queryKey) });
    for (const url of message.urls ?? []) changed.add(url);
    if (changed.size === 0 || timer) return;
    timer = setTimeout(() => {
      const urls = [...changed];
      changed.clear();
      timer = undefined;
      void queries.invalidateQueries({ predicate: (q) => urls.some((url) => concerns(q.queryKey, url)) });
    }, gatherInterval);
  };
  const tell = (message: Message): void => {
    take(message);
    channel.postMessage(message);
  };
  channel.onmessage = ({ data }) => take(data as Message);
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    channel.close();
    live.set(false);
  });
  const lead = (): Promise<void> => streamAgain(last, Date.now() - began < firstWait, tell, signal);
  void navigator.locks.request(name, { signal }, lead).catch(() => undefined);
}

const isData = ([kind]: QueryKey): boolean => ["item", "list", "count"].includes(String(kind));

// concerns reports whether a query shows the item of an event: the item, something below it, a list with it, or the log.
function concerns(key: QueryKey, url: string): boolean {
  const path = String(key[1]);
  return isData(key) && (path === url || path.startsWith(url + "/") || url.startsWith(path + "/") || path === "/log");
}

// streamAgain keeps a stream open until signal aborts. Each begins where the one before it ended, also where that was another tab's.
async function streamAgain(last: string, isFresh: boolean, tell: (message: Message) => void, signal: AbortSignal): Promise<void> {
  for (let wait = firstWait; !signal.aborted; wait = Math.min(2 * wait, longestWait)) {
    const began = Date.now();
    try {
      await stream(last, isFresh, (message) => {
        isFresh = false;
        last = message.last;
        tell(message);
      }, signal);
    } catch (error) {
      if (error instanceof Refused) return;
    }
    if (signal.aborted) return;
    tell({ isLive: false, last });
    if (Date.now() - began > silence) wait = firstWait;
    await new Promise((resolve) => setTimeout(resolve, wait * (0.5 + Math.random())));
  }
}

// Refused is the error of a caller who gets no events.
class Refused extends Error {}

// stream reads events until the stream ends. Without the id of an event to begin behind, everything is read again, unless it is fresh.
async function stream(last: string, isFresh: boolean, tell: (message: Message) => void, signal: AbortSignal): Promise<void> {
  const stop = new AbortController();
  const abort = (): void => stop.abort();
  signal.addEventListener("abort", abort);
  try {
    const headers = { ...header, Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
    const response = await fetch(streamPath, { headers, credentials: "same-origin", cache: "no-store", signal: stop.signal });
    if (response.status === 401) unauthorized.set(true);
    if (response.status === 401 || response.status === 403) throw new Refused();
    if (!response.ok || !response.body) return;
    tell({ isLive: true, last, isAll: !last && !isFresh });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ; ) {
      const timer = setTimeout(abort, silence);
      const { done, value } = await reader.read().finally(() => clearTimeout(timer));
      if (done) return;
      const blocks = (text + value).split("\n\n");
      text = blocks.pop()!;
      const message: Message = { isLive: true, last, urls: [] };
      for (const block of blocks) read(block, message);
      last = message.last;
      tell(message);
    }
  } finally {
    signal.removeEventListener("abort", abort);
    stop.abort();
  }
}

// read adds an event to a message. After reset, and where an event names too few items, everything is read again.
function read(block: string, message: Message): void {
  const fields = new Map(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]));
  message.last = fields.get("id") ?? message.last;
  if (fields.get("event") === "reset") message.isAll = true;
  const data = fields.get("data");
  if (!data) return;
  const event = JSON.parse(data) as { targets?: { url: string }[]; truncated?: boolean };
  if (event.truncated) message.isAll = true;
  message.urls!.push(...(event.targets ?? []).map((target) => target.url));
}
