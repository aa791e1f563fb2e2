import { useNavigate, useSearch, Link } from "@tanstack/react-router";
import { useSuspenseQuery } from "@tanstack/react-query";
import type { ReactElement, ReactNode } from "react";
import { documentQuery, meQuery, type Me } from "../api/session";
import type { Document } from "../api/document";

export type Search = Record<string, string | undefined>;

export function useDocument(): Document {
  return useSuspenseQuery(documentQuery).data;
}

// useMe returns the caller. Pages below the shell are only shown to somebody who has signed in.
export function useMe(): Me {
  return useSuspenseQuery(meQuery).data!;
}

// useAddress returns the query of the page's address, and a function that changes some of it. All state of a page lives there.
export function useAddress(): [Search, (change: Record<string, string | undefined>, replace?: boolean) => void] {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  return [
    search,
    (change, replace = false) => {
      void navigate({ to: ".", search: (old: Search) => withChange(old, change), replace });
    },
  ];
}

export function withChange(old: Search, change: Record<string, string | undefined>): Search {
  const next: Search = {};
  for (const [name, value] of Object.entries({ ...old, ...change })) if (value !== undefined && value !== "") next[name] = value;
  return next;
}

// Go is a link to the page of a path of the API.
export function Go(props: { to: string; search?: Search; children: ReactNode; className?: string; title?: string }): ReactElement {
  return (
    <Link to="/$" params={{ _splat: props.to.slice(1) }} search={props.search ?? {}} className={props.className} title={props.title}>
      {props.children}
    </Link>
  );
}

// parseSearch and writeSearch keep the query of an address as plain text: ?status=assigned, not JSON.
export function parseSearch(text: string): Search {
  return Object.fromEntries(new URLSearchParams(text));
}

export function writeSearch(search: Record<string, unknown>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(search)) if (value !== undefined && value !== "") query.set(name, String(value));
  return query.size ? `?${query}` : "";
}
