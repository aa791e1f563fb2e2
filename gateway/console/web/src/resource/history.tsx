import type { ReactElement } from "react";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { send } from "../api/client";
import type { components } from "../api/schema";
import { Button, Copy, Empty, Loading, ProblemBox, Time } from "../ui/parts";
import { Go, useAddress } from "../shell/state";
import { t } from "../text/text";
import { Changes } from "./changes";

type LogItem = components["schemas"]["LogItem"];
type ViewedLogItem = components["schemas"]["ViewedLogItem"];

// History shows an item's part of the log, the newest first.
export function History({ path, id }: { path: string; id: string }): ReactElement {
  const [search, change] = useAddress();
  const query = { target_type: path.slice(1), target_id: id, sort: "-id", per_page: "25", cursor: search.cursor };
  const log = useQuery({
    queryKey: ["list", "/log", query],
    queryFn: ({ signal }) => send<LogItem[]>("get", "/log", { query, signal }),
    placeholderData: keepPreviousData,
  });
  if (log.isPending) return <Loading />;
  if (log.error) return <ProblemBox error={log.error} retry={() => void log.refetch()} />;
  if (log.data.data.length === 0) return <Empty title={t("The log has nothing about this item.")} />;
  return (
    <>
      <ol className="timeline">
        {log.data.data.map((item) => (
          <li key={item.id}><LogEntry item={item} isOpen={search.entry === String(item.id)} onOpen={(open) => change({ entry: open ? String(item.id) : undefined }, true)} /></li>
        ))}
      </ol>
      <footer className="pages">
        <span />
        <span>
          <Button isDisabled={!log.data.prev} onPress={() => change({ cursor: log.data.prev })}>{t("Newer")}</Button>
          <Button isDisabled={!log.data.next} onPress={() => change({ cursor: log.data.next })}>{t("Older")}</Button>
        </span>
      </footer>
    </>
  );
}

// LogEntry is an item of the log: who did what, and when one opens it, the members before and after.
export function LogEntry({ item, isOpen, onOpen }: { item: LogItem; isOpen: boolean; onOpen: (open: boolean) => void }): ReactElement {
  return (
    <details className="entry" open={isOpen} onToggle={(event) => event.currentTarget.open !== isOpen && onOpen(event.currentTarget.open)}>
      <summary>
        <span className="when"><Time at={item.created_at.iso_8601} /></span>
        <span className="what">{item.desc}</span>
        <span className="by mute">{item.user?.name ?? t("the installation")}</span>
      </summary>
      {isOpen && <LogDetail id={item.id} />}
    </details>
  );
}

export function LogDetail({ id }: { id: number }): ReactElement {
  const entry = useQuery({ queryKey: ["item", `/log/${id}`], queryFn: async ({ signal }) => (await send<ViewedLogItem>("get", `/log/${id}`, { signal })).data });
  if (entry.isPending) return <Loading />;
  if (entry.error) return <ProblemBox error={entry.error} />;
  const item = entry.data;
  const changes = Object.entries(item.data.changes).map(([name, change]) => ({ name, before: change.before, after: change.after }));
  return (
    <div className="detail">
      {changes.length > 0 ? <Changes changes={changes} /> : <p className="mute">{item.data.message}</p>}
      <p className="mute">
        {t("Log item")} <Go to={`/log/${id}`}>{id}</Go> · <code>{item.type}</code>
        {item.ip && <> · {t("from")} <code>{item.ip}</code> <Copy text={item.ip} /></>}
        {item.targets.length > 0 && <> · {item.targets.map((x) => <Go key={x.url} to={x.url}>{x.singular} {x.name} </Go>)}</>}
      </p>
    </div>
  );
}
