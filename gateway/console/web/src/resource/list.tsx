import { lazy, Suspense, useMemo, useState, type ReactElement, type ReactNode } from "react";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { flexRender, getCoreRowModel, useReactTable, type ColumnDef, type RowSelectionState } from "@tanstack/react-table";
import { send } from "../api/client";
import type { Node } from "../api/document";
import { lacks } from "../api/session";
import { Button, Empty, Loading, needs, notify, ProblemBox } from "../ui/parts";
import { Icon } from "../ui/icons";
import { Go, useAddress, useDocument, useMe, type Search } from "../shell/state";
import { t } from "../text/text";
import { columnsOf } from "./columns";
import { Commands } from "./commands";
import type { Item } from "./form-value";
import { Toolbar, filtersOf } from "./toolbar";
import { labelOf, Value } from "./value";

const Dialogs = lazy(() => import("./dialogs"));

// fixed are filters that the page sets. Such a list has neither a toolbar nor a state in the address.
type ListProps = { node: Node; path: string; ids: Record<string, string>; embedded?: boolean; fixed?: Record<string, string> };

const NONE: Search = {};

// List is the page of a collection. Its filters, order, page, columns and dialog are in the address.
export function List({ node, path, ids, embedded, fixed }: ListProps): ReactElement {
  const me = useMe();
  const document = useDocument();
  const [address, change] = useAddress();
  const search = fixed ? NONE : address;
  const [selected, setSelected] = useState<RowSelectionState>({});
  const parameters = new Set(node.list!.parameters.map((p) => p.name));
  const filters = filtersOf(node);
  const query: Record<string, string | undefined> = { per_page: parameters.has("per_page") ? (search.per_page ?? "50") : undefined };
  for (const name of ["q", "sort", "cursor", "before", ...filters.map((f) => f.name)]) if (parameters.has(name)) query[name] = fixed?.[name] ?? search[name];
  const list = useQuery({
    queryKey: ["list", path, query],
    queryFn: ({ signal }) => send<Item[]>("get", path, { query, signal }),
    placeholderData: keepPreviousData,
  });
  const { per_page: _, cursor: __, before: ___, sort: ____, ...counted } = query;
  const total = useQuery({
    queryKey: ["count", path, counted],
    queryFn: async ({ signal }) => (await send<Item[]>("get", path, { query: { ...counted, per_page: "1", count: "true" }, signal })).total ?? "",
    enabled: parameters.has("count") && list.isSuccess,
  });
  const isFiltered = ["q", ...filters.map((f) => f.name)].some((name) => search[name]);
  const rows = list.data?.data ?? [];
  const ids_ = Object.keys(selected).filter((id) => selected[id]);
  return (
    <section className={embedded ? "embedded" : "page"}>
      {!embedded && <Head node={node} />}
      {!fixed && <Toolbar node={node} embedded={embedded}>{embedded && <Actions node={node} />}</Toolbar>}
      {ids_.length > 0 && (
        <div className="bulk" role="region" aria-label={t("Selected items")}>
          <strong>{t("{count} selected", { count: ids_.length })}</strong>
          {node.edit && <Button icon="edit" reason={needs(lacks(node.edit.guard, me))} onPress={() => change({ dialog: "edit-many", ids: ids_.join(",") })}>{t("Edit")}</Button>}
          {node.remove && <Button icon="trash" look="danger" reason={needs(lacks(node.remove.guard, me))} onPress={() => change({ dialog: "delete-many", ids: ids_.join(",") })}>{t("Delete")}</Button>}
          <Button look="quiet" onPress={() => setSelected({})}>{t("Clear")}</Button>
        </div>
      )}
      {list.error && <ProblemBox error={list.error} retry={() => void list.refetch()} />}
      {list.isPending && <Loading />}
      {fixed && list.isSuccess && rows.length === 0 && <p className="mute">{t("None.")}</p>}
      {!fixed && list.isSuccess && rows.length === 0 && (
        isFiltered ? (
          <Empty title={t("Nothing matches.")}>
            <Button onPress={() => change(Object.fromEntries(["q", "cursor", ...filters.map((f) => f.name)].map((n) => [n, undefined])))}>{t("Clear the filters")}</Button>
          </Empty>
        ) : (
          <Empty title={t("No {title} yet.", { title: lower(node.title) })}>
            <p>{withoutLinks(document.tags.get(node.tag) ?? "")}</p>
            {node.create && <CreateButton node={node} />}
            {node.create ? <Commands method="post" path={path} body={node.create.example} /> : <Commands method="get" path={path} />}
          </Empty>
        )
      )}
      {rows.length > 0 && <Table node={node} path={path} rows={rows} selected={selected} setSelected={setSelected} isStale={list.isPlaceholderData} isFixed={!!fixed} />}
      {fixed && list.data?.next && <Go to={path} search={fixed}>{t("Show all")}</Go>}
      {!fixed && rows.length > 0 && (
        <footer className="pages">
          <span className="mute">{total.data ? t("{count} in all", { count: format(total.data) }) : ""}</span>
          <span>
            {search.cursor && <Button look="quiet" onPress={() => change({ cursor: undefined })}>{t("First page")}</Button>}
            <Button isDisabled={!list.data?.prev} onPress={() => change({ cursor: list.data?.prev })}>{t("Previous")}</Button>
            <Button isDisabled={!list.data?.next} onPress={() => change({ cursor: list.data?.next })}>{t("Next")}</Button>
          </span>
        </footer>
      )}
      {!fixed && search.dialog && <Suspense><Dialogs node={node} path={path} ids={ids} /></Suspense>}
    </section>
  );
}

const numbers = new Intl.NumberFormat();

function format(total: string): string {
  return /^\d+$/.test(total) ? numbers.format(Number(total)) : total;
}

function lower(title: string): string {
  return /^[A-Z]{2}/.test(title) ? title : title.charAt(0).toLowerCase() + title.slice(1);
}

function CreateButton({ node }: { node: Node }): ReactElement {
  const me = useMe();
  const [, change] = useAddress();
  return (
    <Button look="primary" icon="plus" reason={needs(lacks(node.create!.guard, me))} onPress={() => change({ dialog: "create" })}>
      {node.create!.summary.replace(/^Make/, "Make").split(" that ")[0]}
    </Button>
  );
}

function Actions({ node }: { node: Node }): ReactElement {
  const me = useMe();
  const [, change] = useAddress();
  return (
    <div className="actions">
      {node.actions.map((o) => (
        <Button key={o.id} reason={needs(lacks(o.guard, me))} onPress={() => change({ dialog: o.id })}>{o.summary}</Button>
      ))}
      {node.create?.acceptsCSV && <Button reason={needs(lacks(node.create.guard, me))} onPress={() => change({ dialog: "import" })}>{t("Import CSV")}</Button>}
      {node.create && <CreateButton node={node} />}
    </div>
  );
}

function Head({ node }: { node: Node }): ReactElement {
  const document = useDocument();
  return (
    <header className="head">
      <div>
        <h1>{node.title}</h1>
        <p className="mute">{withoutLinks(document.tags.get(node.tag) ?? "")}</p>
      </div>
      <Actions node={node} />
    </header>
  );
}

function withoutLinks(text: string): string {
  return text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1");
}

type TableProps = {
  node: Node;
  path: string;
  rows: Item[];
  selected: RowSelectionState;
  setSelected: (change: RowSelectionState | ((old: RowSelectionState) => RowSelectionState)) => void;
  isStale: boolean;
  isFixed: boolean;
};

function Table({ node, path, rows, selected, setSelected, isStale, isFixed }: TableProps): ReactElement {
  const document = useDocument();
  const [search, change] = useAddress();
  const canSelect = !isFixed && ((node.edit?.several ?? 0) > 1 || (node.remove?.several ?? 0) > 1);
  const columns = useMemo<ColumnDef<Item>[]>(() => {
    const { all, usual } = columnsOf(document, node);
    const shown = search.columns ? all.filter((c) => search.columns!.split(",").includes(c.name)) : all.slice(0, usual);
    return shown.map((c, index) => ({
      id: c.name,
      header: labelOf(c.name),
      meta: { sort: c.sort },
      cell: ({ row }) => {
        const item = row.original;
        if (index > 0 || !node.itemPath) return <Value name={c.name} schema={c.schema} value={item[c.name]} />;
        return <ItemLink path={`${path}/${item.id}`}><Value name={c.name} schema={c.schema} value={item[c.name] ?? `#${item.id}`} /></ItemLink>;
      },
    }));
  }, [document, node, path, search.columns]);
  const table = useReactTable({
    data: rows,
    columns,
    getCoreRowModel: getCoreRowModel(),
    getRowId: (row, index) => String(row.id ?? index),
    state: { rowSelection: selected },
    onRowSelectionChange: setSelected,
    enableRowSelection: canSelect,
    manualSorting: true,
  });
  const sort = search.sort ?? "";
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label={node.title} data-stale={isStale || undefined}>
      <table className="table">
        <thead>
          <tr>
            {canSelect && (
              <th className="pick">
                <input
                  type="checkbox" aria-label={t("Select all rows")} checked={table.getIsAllRowsSelected()} onChange={table.getToggleAllRowsSelectedHandler()}
                />
              </th>
            )}
            {table.getFlatHeaders().map((header) => {
              const name = (header.column.columnDef.meta as { sort?: string }).sort;
              const order = name && sort.replace("-", "") === name ? (sort.startsWith("-") ? "descending" : "ascending") : undefined;
              const label = flexRender(header.column.columnDef.header, header.getContext());
              return (
                <th key={header.id} aria-sort={order}>
                  {name && !isFixed ? (
                    <button type="button" onClick={() => change({ sort: order === "ascending" ? `-${name}` : name, cursor: undefined })}>
                      {label}
                      <Icon name={order === "ascending" ? "up" : order ? "down" : "sort"} />
                    </button>
                  ) : label}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {table.getRowModel().rows.map((row) => (
            <tr key={row.id} aria-selected={row.getIsSelected() || undefined}>
              {canSelect && (
                <td className="pick">
                  <input
                    type="checkbox" aria-label={t("Select {name}", { name: String(row.original.name ?? row.id) })}
                    checked={row.getIsSelected()} onChange={row.getToggleSelectedHandler()}
                  />
                </td>
              )}
              {row.getVisibleCells().map((cell) => (
                <td key={cell.id}>{flexRender(cell.column.columnDef.cell, cell.getContext())}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function ItemLink({ path, children }: { path: string; children: ReactNode }): ReactElement {
  return <Go to={path} className="item">{children}</Go>;
}

// exportCSV downloads the whole list, with its filters, as CSV.
export async function exportCSV(path: string, query: Record<string, string | undefined>): Promise<void> {
  const parameters = new URLSearchParams(Object.entries(query).filter((pair): pair is [string, string] => !!pair[1]));
  const response = await fetch(`${path}?${parameters}`, { headers: { Accept: "text/csv", "X-Ironplane-Console": "1" } });
  if (!response.ok) return notify(t("The server answered {status}.", { status: response.status }));
  const link = window.document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = `${path.slice(1).replaceAll("/", "-")}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}
