import { useSyncExternalStore, type ReactElement } from "react";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { send } from "../api/client";
import { live } from "../api/live";
import type { components } from "../api/schema";
import { Button, Empty, Loading, ProblemBox } from "../ui/parts";
import { ItemPage, type ItemProps } from "../resource/item";
import { LogDetail, LogEntry } from "../resource/history";
import { filtersOf, Toolbar } from "../resource/toolbar";
import { useAddress } from "../shell/state";
import { t } from "../text/text";

type LogItem = components["schemas"]["LogItem"];

// LogPage is the audit log, the newest first. An entry opens to the members before and after.
export function LogPage({ node }: ItemProps): ReactElement {
  const [search, change] = useAddress();
  const isLive = useSyncExternalStore(live.subscribe, live.get);
  const filters = Object.fromEntries(filtersOf(node).map((f) => [f.name, search[f.name]]));
  const query = { ...filters, q: search.q, sort: search.sort ?? "-id", per_page: "50", cursor: search.cursor };
  const log = useQuery({
    queryKey: ["list", "/log", query],
    queryFn: ({ signal }) => send<LogItem[]>("get", "/log", { query, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: search.cursor || isLive ? false : 10_000,
  });
  return (
    <section className="page" aria-label={node.title}>
      <header className="head"><div><h1>{t("Log")}</h1><p className="mute">{t("Who changed what, and which requests were refused.")}</p></div></header>
      <Toolbar node={node} without={["columns"]} />
      {log.isPending && <Loading />}
      {log.error && <ProblemBox error={log.error} retry={() => void log.refetch()} />}
      {log.data?.data.length === 0 && <Empty title={t("Nothing matches.")} />}
      {!!log.data?.data.length && (
        <ol className="timeline">
          {log.data.data.map((item) => (
            <li key={item.id}>
              <LogEntry item={item} isOpen={search.entry === String(item.id)} onOpen={(open) => change({ entry: open ? String(item.id) : undefined }, true)} />
            </li>
          ))}
        </ol>
      )}
      <footer className="pages">
        <span />
        <span>
          <Button isDisabled={!log.data?.prev} onPress={() => change({ cursor: log.data?.prev })}>{t("Newer")}</Button>
          <Button isDisabled={!log.data?.next} onPress={() => change({ cursor: log.data?.next })}>{t("Older")}</Button>
        </span>
      </footer>
    </section>
  );
}

// LogItemPage is one item of the log.
export function LogItemPage(props: ItemProps): ReactElement {
  return <ItemPage {...props} overview={(item) => <div className="panel"><LogDetail id={Number(item.id)} /></div>} />;
}
