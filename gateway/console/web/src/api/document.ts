// The API document, and what the console derives from it: lists, forms, pages and navigation.

export type Schema = {
  $ref?: string;
  type?: string | string[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: string[];
  format?: string;
  description?: string;
  examples?: unknown[];
  default?: unknown;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  maxItems?: number;
  pattern?: string;
  writeOnly?: boolean;
  anyOf?: Schema[];
  additionalProperties?: Schema | boolean;
};

export type Parameter = { name: string; in: "query" | "path" | "header"; description?: string; required?: boolean; schema: Schema };

export type Method = "get" | "post" | "patch" | "delete";

export type Operation = {
  id: string;
  method: Method;
  path: string;
  summary: string;
  description: string;
  tag: string;
  guard: string;
  parameters: Parameter[];
  body?: Schema;
  example?: unknown;
  answer?: Schema;
  acceptsCSV: boolean;
  several: number; // how many ids the path may name; 0: one
};

// A Node is a place of the API: a collection with its items, or a single object.
export type Node = {
  kind: "collection" | "single";
  path: string;
  itemPath?: string;
  title: string;
  noun: string;
  tag: string;
  section: string;
  list?: Operation;
  view?: Operation;
  create?: Operation;
  edit?: Operation;
  remove?: Operation;
  itemActions: Operation[];
  actions: Operation[];
  children: Node[];
};

type RawOperation = {
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  parameters?: (Parameter & { $ref?: string })[];
  requestBody?: { content: Record<string, { schema: Schema; example?: unknown }> };
  responses: Record<string, { content?: Record<string, { schema: Schema }> }>;
  "x-guard"?: string;
  "x-several"?: number;
};

export type RawDocument = {
  paths: Record<string, Record<string, RawOperation>>;
  tags: { name: string; description?: string }[];
  components: { schemas: Record<string, Schema>; parameters: Record<string, Parameter> };
};

// titles are the names of places whose summaries do not say what people look for.
const titles: Record<string, string> = {
  "/auth/key/current": "This session’s key",
  "/auth/verify/auth": "Second factors",
  "/auth/verify/method": "Methods of second factors",
  "/auth/verify/recovery": "Recovery codes",
  "/browser-details": "Your address",
  "/field": "Custom fields",
  "/log": "Log",
  "/setting-group": "Settings",
};

// hidden are operations that the sign-in uses, and that have no page of their own.
const hidden = ["/.well-known/", "/auth/openid", "/auth/password-reset", "/auth/sso", "/pxe/driver-upload"];

export class Document {
  readonly nodes: Node[] = [];
  readonly tags = new Map<string, string>();
  readonly operations = new Map<string, Operation>();

  constructor(private readonly raw: RawDocument) {
    for (const tag of raw.tags) this.tags.set(tag.name, tag.description ?? "");
    for (const [path, methods] of Object.entries(raw.paths)) {
      if (hidden.some((prefix) => path.startsWith(prefix))) continue;
      for (const method of ["get", "post", "patch", "delete"] as const) {
        const operation = methods[method];
        if (operation) this.operations.set(`${method} ${path}`, this.read(method, path, operation));
      }
    }
    this.collect();
    const order = [...this.tags.keys()];
    this.nodes.sort((a, b) => order.indexOf(a.tag) - order.indexOf(b.tag));
    this.attach();
  }

  // resolve returns a schema without its reference. A description beside the reference takes precedence.
  resolve(schema: Schema): Schema {
    if (!schema.$ref) return schema;
    const target = this.raw.components.schemas[schema.$ref.slice(schema.$ref.lastIndexOf("/") + 1)] ?? {};
    return { ...this.resolve(target), ...schema, $ref: undefined };
  }

  // nameOf returns the component's name that a schema refers to.
  nameOf(schema: Schema): string {
    return schema.$ref?.slice(schema.$ref.lastIndexOf("/") + 1) ?? "";
  }

  private read(method: Method, path: string, raw: RawOperation): Operation {
    const parameters = (raw.parameters ?? []).map((p) => (p.$ref ? this.raw.components.parameters[p.$ref.slice(p.$ref.lastIndexOf("/") + 1)]! : p));
    const json = raw.requestBody?.content["application/json"];
    return {
      id: raw.operationId,
      method,
      path,
      summary: raw.summary,
      description: raw.description ?? "",
      tag: raw.tags[0] ?? "",
      guard: raw["x-guard"] ?? "",
      parameters,
      body: json?.schema,
      example: json?.example,
      answer: raw.responses["200"]?.content?.["application/json"]?.schema,
      acceptsCSV: !!raw.requestBody?.content["text/csv"],
      several: raw["x-several"] ?? 0,
    };
  }

  private operation(method: Method, path: string): Operation | undefined {
    return this.operations.get(`${method} ${path}`);
  }

  // collect makes the nodes: each list, and each object that is no item of a list.
  private collect(): void {
    const views = [...this.operations.values()].filter((o) => o.method === "get" && o.answer);
    for (const list of views.filter((o) => this.resolve(o.answer!).items)) {
      const view = views.find((o) => o.path.startsWith(`${list.path}/{`) && !o.path.slice(list.path.length + 1).includes("/"));
      const itemPath = view?.path;
      this.nodes.push({
        kind: "collection",
        path: list.path,
        itemPath,
        title: titles[list.path] ?? capitalize(list.summary.replace(/^List (the )?/, "")),
        noun: nounOf(view?.summary ?? list.summary),
        tag: list.tag,
        section: sectionOf(list),
        list,
        view,
        create: this.operation("post", list.path),
        edit: itemPath ? this.operation("patch", itemPath) : undefined,
        remove: itemPath ? this.operation("delete", itemPath) : undefined,
        itemActions: [],
        actions: [this.operation("delete", list.path)].filter((o) => !!o),
        children: [],
      });
    }
    const items = new Set(this.nodes.map((n) => n.itemPath));
    for (const view of views.filter((o) => !this.resolve(o.answer!).items && !items.has(o.path))) {
      if (view.parameters.some((p) => p.in === "query" && p.required)) continue;
      this.nodes.push({
        kind: "single",
        path: view.path,
        title: titles[view.path] ?? capitalize(nounOf(view.summary)),
        noun: nounOf(view.summary),
        tag: view.tag,
        section: sectionOf(view),
        view,
        edit: this.operation("patch", view.path),
        remove: this.operation("delete", view.path),
        itemActions: [this.operation("post", view.path)].filter((o) => !!o),
        actions: [],
        children: [],
      });
    }
  }

  // attach puts nested nodes below their items, and all other operations where they belong.
  private attach(): void {
    for (const node of this.nodes) {
      const parent = this.parentOf(node.path);
      if (parent?.level === "item") parent.node.children.push(node);
    }
    const used = new Set(this.nodes.flatMap((n) => [n.list, n.view, n.create, n.edit, n.remove, ...n.itemActions, ...n.actions]));
    for (const operation of this.operations.values()) {
      if (used.has(operation) || operation.method === "get") continue;
      const parent = this.parentOf(operation.path);
      if (!parent) continue;
      (parent.level === "item" ? parent.node.itemActions : parent.node.actions).push(operation);
    }
  }

  private parentOf(path: string): { node: Node; level: "item" | "list" } | undefined {
    let best: { node: Node; level: "item" | "list" } | undefined;
    let length = 0;
    for (const node of this.nodes) {
      const own = node.kind === "single" ? node.path : node.itemPath;
      if (own && path.startsWith(`${own}/`) && own.length > length) [best, length] = [{ node, level: "item" }, own.length];
      if (node.kind === "collection" && path.startsWith(`${node.path}/`) && node.path.length > length) {
        [best, length] = [{ node, level: "list" }, node.path.length];
      }
    }
    return best;
  }

  // at returns the node of a path, such as /client/5/sub, with the ids in it.
  at(path: string): { node: Node; isItem: boolean; ids: Record<string, string> } | undefined {
    let found: { node: Node; isItem: boolean; ids: Record<string, string> } | undefined;
    let literal = -1;
    for (const node of this.nodes) {
      for (const [template, isItem] of [[node.path, node.kind === "single"], [node.itemPath, true]] as const) {
        const match = template && matchPath(template, path);
        if (match && match.literal > literal) [found, literal] = [{ node, isItem, ids: match.ids }, match.literal];
      }
    }
    return found;
  }

  // matching returns the operation of a request's path, with ids in it.
  matching(method: Method, path: string): Operation | undefined {
    let found: Operation | undefined;
    let literal = -1;
    for (const operation of this.operations.values()) {
      const match = operation.method === method ? matchPath(operation.path, path) : undefined;
      if (match && match.literal > literal) [found, literal] = [operation, match.literal];
    }
    return found;
  }

  node(path: string): Node | undefined {
    return this.nodes.find((n) => n.path === path);
  }

  // target returns the collection that a member refers to by its name: dhcp_server is an item of /pxe/dhcp.
  target(member: string): Node | undefined {
    const name = aliases[member] ?? member.replace(/_id$/, "").replace(/^(pxe|parent)_/, "");
    return this.nodes.find((n) => {
      if (n.kind !== "collection" || n.path.includes("{") || !n.itemPath) return false;
      const names = [n.path.slice(n.path.lastIndexOf("/") + 1), n.itemPath.slice(n.path.length + 2, -1).replace(/_id$/, ""), n.noun];
      return names.some((candidate) => candidate.toLowerCase().replace(/[ -]/g, "_") === name);
    });
  }
}

const aliases: Record<string, string> = { owner: "client", super: "client", sub: "client", user: "client", auth: "authenticator" };

const sections: Record<string, string> = { network: "network", pxe: "pxe", server: "hardware", users: "users", system: "system" };

// sectionOf returns the part of the navigation: the first word of the permission that guards the operation.
function sectionOf(o: Operation): string {
  if (o.path.startsWith("/auth/")) return "access";
  return sections[o.guard.split(".")[0] ?? ""] ?? (o.path.startsWith("/pxe/") ? "pxe" : "system");
}

// nounOf returns the noun of a summary: "View an IP group" is about an "IP group".
export function nounOf(summary: string): string {
  return summary.replace(/^(View|Create|Edit|Delete|List) (the |an |a )?/, "").replace(/ that .*$/, "");
}

export function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function matchPath(template: string, path: string): { ids: Record<string, string>; literal: number } | undefined {
  const [wanted, got] = [template.split("/"), path.split("/")];
  if (wanted.length !== got.length) return undefined;
  const ids: Record<string, string> = {};
  let literal = 0;
  for (const [i, part] of wanted.entries()) {
    if (part.startsWith("{")) {
      if (!got[i]) return undefined;
      ids[part.slice(1, -1)] = got[i];
    } else if (part === got[i]) literal++;
    else return undefined;
  }
  return { ids, literal };
}

// fill puts ids into a path.
export function fill(template: string, ids: Record<string, string>): string {
  return template.replace(/\{([^}]+)\}/g, (_, name: string) => encodeURIComponent(ids[name] ?? "").replaceAll("%2C", ","));
}

// typeOf returns a schema's type without null.
export function typeOf(schema: Schema): string {
  const types = Array.isArray(schema.type) ? schema.type : [schema.type ?? ""];
  return types.find((type) => type !== "null") ?? "";
}

// isNullable reports whether null clears the member.
export function isNullable(schema: Schema): boolean {
  return (Array.isArray(schema.type) && schema.type.includes("null")) || !!schema.anyOf?.some((s) => s.type === "null");
}
