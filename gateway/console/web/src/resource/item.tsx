import { lazy, Suspense, type ReactElement, type ReactNode } from "react";
import { useQuery } from "@tanstack/react-query";
import { send, type Answer } from "../api/client";
import { fill, typeOf, type Node, type Operation, type Schema } from "../api/document";
import { lacks } from "../api/session";
import { Badge, Button, Copy, Loading, needs, ProblemBox, Time } from "../ui/parts";
import { Go, useAddress, useDocument, useMe } from "../shell/state";
import { t } from "../text/text";
import { List } from "./list";
import type { Item } from "./form-value";
import { isTime, labelOf, Value } from "./value";
import { History } from "./history";

const Dialogs = lazy(() => import("./dialogs"));

export type ItemProps = { node: Node; path: string; ids: Record<string, string> };

// useItem reads an item, with its parts that a request has to ask for.
export function useItem({ node, path }: ItemProps, refetchInterval?: (item: Item | undefined) => number | false): ReturnType<typeof useQuery<Answer<Item>>> {
  const include = node.view?.parameters.find((p) => p.name === "include")?.schema.items?.enum?.join(",");
  return useQuery({
    queryKey: ["item", path],
    queryFn: ({ signal }) => send<Item>("get", path, { query: { include }, signal }),
    refetchInterval: refetchInterval && ((query) => refetchInterval(query.state.data?.data)),
  });
}

// ItemPage is the page of an item, or of a single object.
export function ItemPage(props: ItemProps & { overview?: (item: Item, answer: Answer<Item>) => ReactNode; poll?: (item: Item | undefined) => number | false; hide?: string[] }): ReactElement {
  const { node, path, ids } = props;
  const [search] = useAddress();
  const answer = useItem(props, props.poll);
  const item = answer.data?.data;
  if (answer.isPending) return <Loading />;
  if (answer.error && !item) return <section className="page"><ProblemBox error={answer.error} retry={() => void answer.refetch()} /></section>;
  const tabs = [
    { id: "", label: t("Overview") },
    ...node.children
      .map((child) => ({ id: child.path.slice((node.itemPath ?? node.path).length + 1), label: child.title }))
      .filter(({ id }) => !props.hide?.includes(id)),
    ...(node.kind === "collection" && !node.path.includes("{") ? [{ id: "history", label: t("History") }] : []),
  ];
  const tab = tabs.find((x) => x.id === search.tab) ?? tabs[0]!;
  const child = node.children.find((c) => c.path.slice((node.itemPath ?? node.path).length + 1) === tab.id);
  return (
    <section className="page">
      <ItemHead {...props} item={item!} etag={answer.data?.etag} />
      {tabs.length > 1 && (
        <nav className="tabs" aria-label={t("Parts of the item")}>
          {tabs.map((x) => (
            <Go key={x.id} to={path} search={x.id ? { tab: x.id } : {}} className={x === tab ? "tab current" : "tab"}>{x.label}</Go>
          ))}
        </nav>
      )}
      {tab.id === "" && (props.overview?.(item!, answer.data!) ?? <Overview node={node} item={item!} />)}
      {tab.id === "history" && <History path={node.path} id={ids[Object.keys(ids).at(-1)!]!} />}
      {child && <Child key={child.path} node={child} ids={ids} />}
      {search.dialog && !child && (
        <Suspense><Dialogs node={node} path={path} ids={ids} item={item} etag={answer.data?.etag} /></Suspense>
      )}
    </section>
  );
}

function Child({ node, ids }: { node: Node; ids: Record<string, string> }): ReactElement {
  const path = fill(node.path, ids);
  return node.kind === "collection" ? <List node={node} path={path} ids={ids} embedded /> : <Single node={node} path={path} ids={ids} />;
}

// Single is an object below an item, such as an admin's permissions.
function Single(props: ItemProps): ReactElement {
  const [search] = useAddress();
  const answer = useItem(props);
  if (answer.isPending) return <Loading />;
  if (answer.error) return <ProblemBox error={answer.error} retry={() => void answer.refetch()} />;
  return (
    <>
      <div className="actions"><ItemActions node={props.node} /></div>
      <Overview node={props.node} item={answer.data.data} />
      {search.dialog && <Suspense><Dialogs {...props} item={answer.data.data} etag={answer.data.etag} /></Suspense>}
    </>
  );
}

export function ItemHead({ node, path, item }: ItemProps & { item: Item; etag?: string }): ReactElement {
  const title = item.name ?? item.slug ?? item.desc ?? item.subject ?? (node.kind === "single" ? node.title : `${labelOf(node.noun)} ${item.id ?? ""}`);
  const status = item.status ?? item.state;
  return (
    <header className="head">
      <div>
        <p className="crumbs"><Crumbs node={node} path={path} /></p>
        <h1>
          {String(title)} {typeof status === "string" && <Badge>{status}</Badge>}
        </h1>
        {item.id !== undefined && (
          <p className="mute">
            {labelOf(node.noun)} <code>{String(item.id)}</code> <Copy text={String(item.id)} label={t("Copy the id")} />
            {isTime(item.created_at) && <> · {t("created")} <Time at={item.created_at.iso_8601} /></>}
          </p>
        )}
      </div>
      <div className="actions"><ItemActions node={node} /></div>
    </header>
  );
}

function Crumbs({ node, path }: { node: Node; path: string }): ReactElement {
  const parts = path.split("/").slice(1);
  const document = useDocument();
  const links: ReactElement[] = [];
  for (let i = 1; i < parts.length; i++) {
    const at = `/${parts.slice(0, i).join("/")}`;
    const found = document.at(at);
    if (found) links.push(<span key={at}><Go to={at}>{found.isItem && found.node.kind === "collection" ? `${labelOf(found.node.noun)} ${parts[i - 1]}` : found.node.title}</Go> / </span>);
  }
  return <>{links}{node.kind === "single" ? node.title : ""}</>;
}

// ItemActions are the buttons of an item. One that the caller may not use says which permission lacks.
function ItemActions({ node }: { node: Node }): ReactElement {
  const me = useMe();
  const [, change] = useAddress();
  const button = (o: Operation, label: string, icon?: "edit" | "trash"): ReactElement => (
    <Button
      key={o.id} icon={icon} look={o.method === "delete" ? "danger" : "plain"}
      reason={needs(lacks(o.guard, me))}
      onPress={() => change({ dialog: o === node.edit ? "edit" : o === node.remove ? "delete" : o.id })}
    >
      {label}
    </Button>
  );
  return (
    <>
      {node.itemActions.filter((o) => o.guard !== "public").map((o) => button(o, shortLabel(o, node)))}
      {node.edit && button(node.edit, t("Edit"), "edit")}
      {node.remove && button(node.remove, t("Delete"), "trash")}
    </>
  );
}

// labels are the names of actions whose summaries are too long for a button.
const labels = (): Record<string, string> => ({
  createIPEntities: t("Add addresses"), deleteIPEntities: t("Delete addresses"), allocateIPEntities: t("Allocate"), emailClient: t("Send a mail"),
  deleteClientVerify: t("Remove second factors"), deleteAdminVerify: t("Remove second factors"),
});

// shortLabel is a summary without what the page says already: "Suspend a client" is "Suspend" on a client's page. A long summary gives
// way to the last word of the path.
function shortLabel(o: Operation, node: Node): string {
  if (labels()[o.id]) return labels()[o.id]!;
  const short = o.summary.split(/[,:]/)[0]!.replace(new RegExp(` (of )?(a|an|the) ${node.noun}$`, "i"), "");
  return short.length > 24 ? `${o.path.split("/").at(-1)!.charAt(0).toUpperCase()}${o.path.split("/").at(-1)!.slice(1).replaceAll("-", " ")}` : short;
}

// Overview shows all members of an item.
export function Overview({ node, item, without }: { node: Node; item: Item; without?: string[] }): ReactElement {
  const document = useDocument();
  const schema = node.view?.answer ? document.resolve(node.view.answer) : {};
  const names = [...new Set([...Object.keys(schema.properties ?? {}), ...Object.keys(item)])].filter(
    (name) => !["id", "name", "status", "state", ...(without ?? [])].includes(name) && item[name] !== undefined && !(Array.isArray(item[name]) && item[name].length === 0) && !repeats(document.resolve(schema.properties?.[name] ?? {}), item, name),
  );
  const isWide = (name: string): boolean => {
    const value = item[name];
    if (typeof value === "string") return value.includes("\n") || value.length > 120;
    const own = schema.properties?.[name] ? document.resolve(schema.properties[name]) : ({} as Schema);
    return typeof value === "object" && value !== null && !isTime(value) && (Array.isArray(value) ? typeof value[0] === "object" : typeOf(own) === "object" && Object.keys(value).length > 3);
  };
  return (
    <dl className="members">
      {[...names.filter((n) => !isWide(n)), ...names.filter(isWide)].map((name) => (
        <div key={name} className={isWide(name) ? "wide" : undefined}>
          <dt title={schema.properties?.[name]?.description}>{labelOf(name)}</dt>
          <dd><Value name={name} schema={schema.properties?.[name]} value={item[name]} full /></dd>
        </div>
      ))}
    </dl>
  );
}

// repeats reports whether a member only repeats another one: "the IPv4 address, as in v4".
function repeats(schema: Schema, item: Item, name: string): boolean {
  const other = /^the .*, as in (\w+)$/.exec(schema.description ?? "")?.[1] ?? /^The same as (\w+)\./.exec(schema.description ?? "")?.[1];
  return !!other && item[other] !== undefined && other !== name;
}
