import { isNullable, typeOf, type Document, type Schema } from "../api/document";

export type Item = Record<string, unknown>;

// plain returns the schema of a member without null and references.
export function plain(document: Document, schema: Schema): Schema {
  const choice = schema.anyOf?.find((s) => s.type !== "null");
  return choice ? { ...document.resolve(choice), description: schema.description ?? choice.description } : document.resolve(schema);
}

export function isTimestamp(schema: Schema): boolean {
  return !!schema.properties?.iso_8601;
}

function isBlank(value: unknown): boolean {
  return value === undefined || value === null || value === "" || (Array.isArray(value) && value.length === 0);
}

// toBody returns what a form's value is in a request: without members that the body lacks, and with numbers as numbers.
export function toBody(document: Document, schema: Schema, value: unknown): unknown {
  const own = plain(document, schema);
  if (isBlank(value)) return Array.isArray(value) ? [] : undefined;
  switch (typeOf(own)) {
    case "integer":
    case "number":
      return /^-?\d+(\.\d+)?$/.test(String(value)) ? Number(value) : value;
    case "array":
      return (value as unknown[]).map((v) => toBody(document, own.items ?? {}, v)).filter((v) => v !== undefined);
    case "object": {
      if (isTimestamp(own)) return (value as Item).iso_8601 ? { iso_8601: (value as Item).iso_8601 } : undefined;
      if (!own.properties) return value;
      const body: Item = {};
      for (const [name, member] of Object.entries(own.properties)) {
        const converted = toBody(document, member, (value as Item)[name]);
        if (converted !== undefined && !(Array.isArray(converted) && converted.length === 0)) body[name] = converted;
      }
      return Object.keys(body).length ? body : undefined;
    }
    default:
      return value;
  }
}

// toChange returns the members that differ from those before. A member that was cleared is null where the body allows it.
export function toChange(document: Document, schema: Schema, before: Item, after: Item): Item {
  const change: Item = {};
  const own = plain(document, schema);
  for (const [name, member] of Object.entries(own.properties ?? {})) {
    const [was, is] = [toBody(document, member, before[name]), toBody(document, member, after[name])];
    if (JSON.stringify(was) === JSON.stringify(is)) continue;
    const kind = plain(document, member);
    if (is === undefined || (Array.isArray(is) && is.length === 0)) {
      if (was !== undefined) change[name] = typeOf(kind) === "array" ? [] : isNullable(member) ? null : "";
    } else if (typeOf(kind) === "object" && kind.properties && !isTimestamp(kind)) {
      change[name] = { ...(is as Item), ...cleared(document, kind, was as Item | undefined, is as Item) };
    } else change[name] = is;
  }
  return change;
}

// withRequired adds the members that every edit has to repeat.
export function withRequired(document: Document, schema: Schema, change: Item, value: Item): Item {
  const required = (schema.required ?? []).filter((name) => value[name] !== undefined);
  return { ...Object.fromEntries(required.map((name) => [name, toBody(document, schema.properties?.[name] ?? {}, value[name])])), ...change };
}

function cleared(document: Document, schema: Schema, was: Item = {}, is: Item = {}): Item {
  const nulls: Item = {};
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    if (was[name] !== undefined && is[name] === undefined && isNullable(member)) nulls[name] = null;
  }
  void document;
  return nulls;
}

// initial returns a form's value for an item: the members that the body has, with defaults for a new one.
export function initial(document: Document, schema: Schema, item: Item = {}): Item {
  const value: Item = {};
  for (const [name, member] of Object.entries(plain(document, schema).properties ?? {})) {
    if (item[name] !== undefined) value[name] = item[name];
    else if (plain(document, member).default !== undefined) value[name] = plain(document, member).default;
  }
  return value;
}

// differences names the members of two versions of an item that differ.
export function differences(before: Item, after: Item): { name: string; before: unknown; after: unknown }[] {
  const names = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...names]
    .filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]))
    .map((name) => ({ name, before: before[name], after: after[name] }));
}
