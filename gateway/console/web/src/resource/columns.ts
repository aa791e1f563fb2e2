import { typeOf, type Document, type Node, type Schema } from "../api/document";

export type Column = { name: string; schema: Schema; sort?: string };

// columns are the columns of collections whose members' names do not say what people look for first.
const chosen: Record<string, string[]> = {
  "/entity": ["name", "full_ip", "status", "owner", "group", "vlan", "billing_id"],
  "/client": ["name", "email", "serversCount", "suspended", "created_at", "billing_id", "integration"],
  "/group": ["name", "entities", "servers", "reserved", "pxe_dhcp_server", "billing_id"],
  "/log": ["created_at", "desc", "user", "ip", "type"],
  "/pxe/install": ["name", "status", "progress", "profile", "host", "client", "created_at", "step"],
  "/auth/session": ["agent", "ip", "created_at", "last_used_at", "expires_at", "acting", "actor"],
};

const defaultCount = 6;

// columnsOf returns all columns that a list can show, the usual ones first, and how many of them are usual.
export function columnsOf(document: Document, node: Node): { all: Column[]; usual: number } {
  const item = document.resolve(document.resolve(node.list!.answer!).items ?? {});
  const sorts = node.list!.parameters.find((p) => p.name === "sort")?.schema.enum ?? [];
  const names = Object.keys(item.properties ?? {}).filter((name) => name !== "id" && isShown(document.resolve(item.properties![name]!)));
  const wanted = chosen[node.path]?.filter((name) => names.includes(name));
  const required = new Set(item.required);
  const rank = (name: string): number => (name === "name" ? 0 : name === "status" || name === "state" ? 1 : required.has(name) ? 2 : name.endsWith("_at") ? 4 : 3);
  const ordered = [...names].sort((a, b) => rank(a) - rank(b));
  const all = wanted ? [...wanted, ...ordered.filter((name) => !wanted.includes(name))] : ordered;
  return {
    all: all.map((name) => ({ name, schema: item.properties![name]!, sort: sorts.includes(name) ? name : undefined })),
    usual: wanted ? Math.min(wanted.length, 7) : defaultCount,
  };
}

// isShown leaves out what a cell cannot show: secrets, maps and long texts.
function isShown(schema: Schema): boolean {
  if (schema.writeOnly || (schema.maxLength ?? 0) > 1000) return false;
  if (typeOf(schema) !== "object") return true;
  return !!schema.properties && !schema.additionalProperties;
}
