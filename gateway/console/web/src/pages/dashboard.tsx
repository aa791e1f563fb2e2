import { useEffect, type ReactElement } from "react";
import { useQuery } from "@tanstack/react-query";
import { api, json, send } from "../api/client";
import type { components } from "../api/schema";
import { lacks } from "../api/session";
import { Go, useDocument, useMe, type Search } from "../shell/state";
import { t } from "../text/text";

type Counted = { path: string; label: string; search?: Search; tone?: "bad" | "warn" };

// Dashboard shows what needs attention, and how much there is.
export function Dashboard(): ReactElement {
  const me = useMe();
  const document = useDocument();
  useEffect(() => {
    window.document.title = `${t("Overview")} · Ironplane`;
  }, []);
  const isVisible = (path: string): boolean => {
    const node = document.node(path);
    return !!node?.list && !lacks(node.list.guard, me);
  };
  const attention: Counted[] = [
    { path: "/pxe/install", label: t("Installs that failed"), search: { status: "failed" }, tone: "bad" as const },
    { path: "/email/message", label: t("Mails that failed"), search: { status: "failed" }, tone: "bad" as const },
    { path: "/pxe/install", label: t("Installs under way"), search: { status: "installing" } },
    { path: "/client", label: t("Suspended clients"), search: { disabled: "true" }, tone: "warn" as const },
  ].filter((c) => isVisible(c.path));
  const totals: Counted[] = [
    { path: "/group", label: t("IP groups") },
    { path: "/entity", label: t("IP entities") },
    { path: "/client", label: t("Clients") },
    { path: "/pxe/install", label: t("Installs") },
    { path: "/pxe/profile", label: t("Profiles") },
    { path: "/admin", label: t("Admins") },
  ].filter((c) => isVisible(c.path));
  return (
    <section className="page">
      <header className="head"><div><h1>{t("Overview")}</h1><p className="mute">{t("Signed in as {name}.", { name: me.name })}</p></div></header>
      <div className="tiles">{totals.map((c) => <Tile key={c.label} {...c} />)}</div>
      {attention.length > 0 && (
        <>
          <h2>{t("Attention")}</h2>
          <div className="tiles">{attention.map((c) => <Tile key={c.label} {...c} />)}</div>
        </>
      )}
      {isVisible("/todo") && <Todo />}
    </section>
  );
}

function Tile({ path, label, search = {}, tone }: Counted): ReactElement {
  const count = useQuery({
    queryKey: ["count", path, search],
    queryFn: async ({ signal }) => (await send<unknown[]>("get", path, { query: { ...search, per_page: "1", count: "true" }, signal })).total ?? "0",
  });
  const isQuiet = count.data === "0" || count.data === undefined;
  return (
    <Go to={path} search={search} className={`tile${tone && !isQuiet ? ` ${tone}` : ""}`}>
      <span className="count">{count.isPending ? "…" : count.error ? "–" : count.data}</span>
      <span>{label}</span>
    </Go>
  );
}

type TodoItem = components["schemas"]["TodoItem"];

// steps say what each step of the set-up is, and where it is done.
const steps = (): Record<string, [string, string]> => ({
  "network.group.add": [t("Create an IP group: the address space of a site"), "/group"],
  "network.entity.add": [t("Add addresses"), "/entity"],
  "hardware.server.part.add": [t("Add computer parts"), "/part"],
  "pxe.dhcp.add": [t("Connect a site agent as a DHCP server"), "/pxe/dhcp"],
  "pxe.file.add": [t("Add a file server"), "/pxe/file"],
  "pxe.profile.add": [t("Create a profile"), "/pxe/profile"],
  "hardware.server.install.add": [t("Install a server"), "/pxe/install"],
  "hardware.server.install.finish": [t("Finish an install"), "/pxe/install"],
  "auth.verify.add": [t("Add a second factor to your account"), "/auth/verify/auth"],
  "system.email.configure": [t("Set up mail, and send one"), "/setting-group"],
  "system.integration.add": [t("Connect a billing system"), "/integration"],
});

// Todo lists what is left to set up.
function Todo(): ReactElement | null {
  const todo = useQuery({ queryKey: ["list", "/todo", {}], queryFn: () => json(api.GET("/todo")) });
  const open = todo.data?.filter((item) => !item.completed_at) ?? [];
  if (open.length === 0) return null;
  return (
    <>
      <h2>{t("Left to set up")}</h2>
      <ul className="cards">{open.map((item) => <li key={item.id}><Step item={item} /></li>)}</ul>
    </>
  );
}

function Step({ item }: { item: TodoItem }): ReactElement {
  const [label, path] = steps()[item.slug] ?? [item.slug, `/todo/${item.id}`];
  return <Go to={path}>{label}</Go>;
}
