import { queryOptions } from "@tanstack/react-query";
import type { components } from "./schema";
import { newKey, ProblemError, send, unauthorized, type Answer } from "./client";
import { Document, type RawDocument } from "./document";

type Key = components["schemas"]["APIKey"];
type Permissions = components["schemas"]["Permissions"];
type Session = components["schemas"]["Session"];

export type Challenge = components["schemas"]["LoginVerify"];

// Me is the caller: the account of the session, and what it may do.
export type Me = {
  key: Key;
  kind: "admin" | "client" | "integration";
  id: string;
  name: string;
  permissions: Set<string>;
  actor?: string; // the account that acts as this one
};

const sessionPath = "/-/console/session";

// signIn begins a session. A login that needs a second factor returns its challenge.
export async function signIn(body: Record<string, unknown>): Promise<Challenge | undefined> {
  const { data } = await send<{ verify?: Challenge }>("post", sessionPath, { body });
  unauthorized.set(false);
  sessionStorage.removeItem(openIDName); // a sign-in at a provider that was left
  return data.verify;
}

const openIDName = "ironplane-openid"; // in the tab's storage until the browser comes back from the provider

export type OpenIDLogin = { verifier: string; to?: string };

// beginOpenID sends the browser to the page of an identity provider. The tab keeps a verifier: only it can finish the sign-in.
export async function beginOpenID(provider: number, to?: string): Promise<void> {
  const login: OpenIDLogin = { verifier: newKey(), to };
  const sum = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(login.verifier));
  const challenge = btoa(String.fromCharCode(...new Uint8Array(sum))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const { data } = await send<{ url: string }>("post", "/auth/openid", { body: { provider: { id: provider }, challenge } });
  sessionStorage.setItem(openIDName, JSON.stringify(login));
  location.assign(data.url);
}

// takeOpenID returns the sign-in that the tab has begun at a provider, once.
export function takeOpenID(): OpenIDLogin | undefined {
  const text = sessionStorage.getItem(openIDName);
  sessionStorage.removeItem(openIDName);
  return text ? (JSON.parse(text) as OpenIDLogin) : undefined;
}

// renew gives the session more time.
export async function renew(): Promise<void> {
  await send("patch", sessionPath);
}

export async function signOut(): Promise<void> {
  await send("delete", sessionPath);
}

async function loadMe(): Promise<Me | null> {
  let key: Key;
  try {
    key = (await send<Key>("get", sessionPath)).data;
  } catch (error) {
    if (error instanceof ProblemError && error.status === 401) return null;
    throw error;
  }
  const [, kind = "", id = ""] = key.owner.url.split("/");
  const me: Me = { key, kind: kind as Me["kind"], id, name: key.owner.name ?? key.name, permissions: new Set() };
  const [permissions, sessions] = await Promise.all([
    kind === "client" ? undefined : orUndefined(send<Permissions>("get", `${key.owner.url}/permission`)),
    orUndefined(send<Session[]>("get", "/auth/session")),
  ]);
  for (const [section, kinds] of Object.entries(permissions ?? {})) {
    for (const [name, access] of Object.entries(kinds as Record<string, { read: boolean; write: boolean }>)) {
      for (const verb of ["read", "write"] as const) {
        const permission = `${section}.${name} ${verb}`;
        if (access[verb] && (!key.bound || key.bound.includes(permission))) me.permissions.add(permission);
      }
    }
  }
  me.actor = sessions?.find((s) => s.id === key.id && s.acting)?.actor?.name;
  return me;
}

async function orUndefined<T>(answer: Promise<Answer<T>>): Promise<T | undefined> {
  try {
    return (await answer).data;
  } catch {
    return undefined;
  }
}

export const meQuery = queryOptions({ queryKey: ["me"], queryFn: loadMe, staleTime: 60_000 });

export const documentQuery = queryOptions({
  queryKey: ["document"],
  queryFn: async () => new Document((await send<RawDocument>("get", "/-/openapi.json")).data),
  staleTime: Infinity,
  structuralSharing: false,
});

// lacks returns the permission that the caller lacks for a guard, or nothing. The server decides; this only explains.
export function lacks(guard: string, me: Me): string | undefined {
  if (guard === "every permission") return me.kind === "client" ? guard : undefined;
  if (guard === "a client") return me.kind === "client" ? undefined : guard;
  const match = /^([a-z]+\.[a-z_]+ (?:read|write))(?: or (a client|a reseller|self))?$/.exec(guard);
  if (!match) return undefined;
  const [, permission = "", other] = match;
  if (other === "self" ? me.kind !== "client" : other && me.kind === "client") return undefined;
  return me.permissions.has(permission) ? undefined : permission;
}
