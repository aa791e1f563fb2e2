import { lazy, Suspense, useEffect, useRef, useState, type ReactElement, type ReactNode } from "react";
import type { Node, Parameter } from "../api/document";
import { typeOf } from "../api/document";
import { Icon } from "../ui/icons";
import { LazyMenu } from "../ui/lazy-menu";
import { Button } from "../ui/parts";
import { useAddress, useDocument } from "../shell/state";
import { t } from "../text/text";
import { columnsOf } from "./columns";
import { exportCSV } from "./list";
import { labelOf } from "./value";

const SavedFilters = lazy(() => import("./saved"));

const notFilters = new Set(["q", "sort", "per_page", "page", "cursor", "count", "include", "before"]);

// filtersOf returns a list's parameters that filter.
export function filtersOf(node: Node): Parameter[] {
  return node.list!.parameters.filter((p) => p.in === "query" && !notFilters.has(p.name));
}

// Toolbar has a list's search, filters, columns and download.
export function Toolbar({ node, embedded, without, children }: { node: Node; embedded?: boolean; without?: string[]; children?: ReactNode }): ReactElement {
  const document = useDocument();
  const [search, change] = useAddress();
  const filters = filtersOf(node);
  const [opened, setOpened] = useState<string>();
  const active = filters.filter((f) => search[f.name] || f.name === opened);
  const { all, usual } = columnsOf(document, node);
  const shown = search.columns?.split(",") ?? all.slice(0, usual).map((c) => c.name);
  const hasSearch = node.list!.parameters.some((p) => p.name === "q");
  return (
    <div className="toolbar">
      {hasSearch && <SearchBox value={search.q ?? ""} onChange={(q) => change({ q, cursor: undefined }, true)} />}
      {active.map((f) => (
        <FilterChip
          key={f.name} filter={f} value={search[f.name] ?? ""} autoFocus={f.name === opened}
          onChange={(value) => change({ [f.name]: value, cursor: undefined })}
          onRemove={() => {
            setOpened(undefined);
            change({ [f.name]: undefined, cursor: undefined });
          }}
        />
      ))}
      {filters.length > active.length && (
        <LazyMenu
          className="button quiet" button={<><Icon name="filter" />{t("Filter")}</>} onAction={setOpened}
          entries={filters.filter((f) => !active.includes(f)).map((f) => ({ id: f.name, label: labelOf(f.name) }))}
        />
      )}
      <span className="space" />
      {!embedded && <Suspense><SavedFilters path={node.path} /></Suspense>}
      {all.length > usual && !without?.includes("columns") && (
        <LazyMenu
          className="button quiet" button={t("Columns")} entries={all.map((c) => ({ id: c.name, label: labelOf(c.name) }))} selected={shown}
          onSelect={(names) => names.length > 0 && change({ columns: all.map((c) => c.name).filter((n) => names.includes(n)).join(",") }, true)}
        />
      )}
      {!embedded && node.list!.parameters.some((p) => p.name === "per_page") && (
        <Button look="quiet" onPress={() => void exportCSV(node.path, Object.fromEntries(["q", "sort", ...filters.map((f) => f.name)].map((n) => [n, search[n]])))}>
          {t("Export CSV")}
        </Button>
      )}
      {children}
    </div>
  );
}

const typingPause = 250;

function SearchBox({ value, onChange }: { value: string; onChange: (value: string) => void }): ReactElement {
  const [text, setText] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (window.document.activeElement !== field.current) setText(value); // somebody went back, or cleared the filters
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <label className="search">
      <Icon name="search" />
      <input
        ref={field}
        type="search" placeholder={t("Search")} aria-label={t("Search this list")} value={text} data-key="/"
        onChange={(event) => {
          const next = event.target.value;
          setText(next);
          clearTimeout(timer.current);
          timer.current = setTimeout(() => onChange(next), typingPause);
        }}
      />
    </label>
  );
}

type FilterProps = { filter: Parameter; value: string; autoFocus: boolean; onChange: (value: string) => void; onRemove: () => void };

function FilterChip({ filter, value, autoFocus, onChange, onRemove }: FilterProps): ReactElement {
  const options = filter.schema.enum ?? (typeOf(filter.schema) === "boolean" ? ["true", "false"] : undefined);
  const [text, setText] = useState(value);
  return (
    <span className="chip">
      <label>
        {labelOf(filter.name)}
        {options ? (
          <select value={value} autoFocus={autoFocus} onChange={(event) => onChange(event.target.value)}>
            <option value="">{t("any")}</option>
            {options.map((o) => <option key={o}>{o}</option>)}
          </select>
        ) : (
          <input
            value={text} autoFocus={autoFocus} title={filter.description} onChange={(event) => setText(event.target.value)}
            onBlur={() => text !== value && onChange(text)} onKeyDown={(event) => event.key === "Enter" && onChange(text)}
          />
        )}
      </label>
      <button type="button" aria-label={t("Remove the filter {name}", { name: labelOf(filter.name) })} onClick={onRemove}><Icon name="close" /></button>
    </span>
  );
}
