import { lazy, Suspense, useEffect, useState, useSyncExternalStore, type ReactElement } from "react";
import { useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useNavigate, useLocation } from "@tanstack/react-router";
import { connection, unauthorized } from "../api/client";
import type { Node } from "../api/document";
import { follow } from "../api/live";
import { lacks, meQuery, renew, signOut } from "../api/session";
import { LazyMenu } from "../ui/lazy-menu";
import { Button, Messages } from "../ui/parts";
import { Icon, type IconName } from "../ui/icons";
import { chooseLanguage, language, languageNames, t } from "../text/text";
import { Go, useAddress, useDocument, useMe } from "./state";
import { chooseScheme, scheme } from "./scheme";
import { useClientTheme, useSiteName } from "./theme";

const Palette = lazy(() => import("./palette"));
const Keys = lazy(() => import("./keys"));

export const sectionNames = (): [string, string, IconName][] => [
  ["network", t("Network"), "network"],
  ["pxe", t("Installs"), "disk"],
  ["users", t("Accounts"), "user"],
  ["hardware", t("Hardware"), "server"],
  ["access", t("Access"), "key"],
  ["system", t("System"), "gear"],
];

// useVisible returns the places that the caller may see, in the order of the document.
export function useVisible(): Node[] {
  const document = useDocument();
  const me = useMe();
  return document.nodes.filter((n) => !n.path.includes("{") && !lacks((n.list ?? n.view)!.guard, me));
}

const renewInterval = 10 * 60_000;

// Layout is the frame of all pages behind the sign-in.
export function Layout(): ReactElement {
  const [search, change] = useAddress();
  const [isMenuOpen, setMenuOpen] = useState(false);
  const { pathname } = useLocation();
  const client = useQueryClient();
  const navigate = useNavigate();
  const me = useMe();
  const isUnauthorized = useSyncExternalStore(unauthorized.subscribe, unauthorized.get);
  useEffect(() => setMenuOpen(false), [pathname]);
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && void renew().catch(() => undefined), renewInterval);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => {
    if (me.kind === "client") return; // clients have no events
    const stop = new AbortController();
    follow(client, `ironplane-events-${me.key.id}`, stop.signal);
    return () => stop.abort();
  }, [client, me.kind, me.key.id]);
  useEffect(() => {
    if (!isUnauthorized) return;
    client.setQueryData(meQuery.queryKey, null);
    void navigate({ to: "/sign-in", search: { to: location.pathname.replace("/-/console", "") + location.search } });
  }, [isUnauthorized, client, navigate]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const inField = event.target instanceof HTMLElement && event.target.closest("input, textarea, select, [contenteditable]");
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        change({ palette: "1" }, true);
      } else if (event.key === "?" && !inField) change({ keys: "1" }, true);
      else if (event.key === "/" && !inField) {
        const field = document.querySelector<HTMLElement>("[data-key='/']");
        if (field) event.preventDefault();
        field?.focus();
      } else if (event.key === "c" && !inField && !event.ctrlKey && !event.metaKey && !event.altKey && !search.dialog) {
        document.querySelector<HTMLElement>(".page .button.primary")?.click();
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
  if (isUnauthorized) return <Outlet />;
  return (
    <div className={isMenuOpen ? "shell open" : "shell"}>
      <a className="skip" href="#main">{t("Skip to the content")}</a>
      <Sidebar />
      <div className="body">
        <Top onMenu={() => setMenuOpen(!isMenuOpen)} isMenuOpen={isMenuOpen} />
        <main id="main" tabIndex={-1}>
          <Outlet />
        </main>
      </div>
      <Messages />
      <Suspense>
        {search.palette && <Palette onClose={() => change({ palette: undefined }, true)} />}
        {search.keys && <Keys onClose={() => change({ keys: undefined }, true)} />}
      </Suspense>
    </div>
  );
}

function Sidebar(): ReactElement {
  const visible = useVisible();
  const me = useMe();
  const name = useSiteName();
  useClientTheme(me.kind === "client");
  return (
    <nav className="sidebar" aria-label={t("Pages")}>
      <Link to="/" className="brand"><Logo /><span>{name}</span></Link>
      <div className="entries">
        <Link to="/" className="entry-link" activeOptions={{ exact: true }} activeProps={{ className: "entry-link current" }}>
          <Icon name="home" />{t("Overview")}
        </Link>
        {sectionNames().map(([id, name, icon]) => {
          const nodes = visible.filter((n) => n.section === id);
          return nodes.length > 0 && <Section key={id} id={id} name={name} icon={icon} nodes={nodes} isOpen={id !== "access" || me.kind === "client"} />;
        })}
      </div>
    </nav>
  );
}

function Section({ id, name, icon, nodes, isOpen }: { id: string; name: string; icon: IconName; nodes: Node[]; isOpen: boolean }): ReactElement {
  const { pathname } = useLocation();
  const key = `ironplane-section-${id}`;
  const current = nodes.find((n) => pathname === n.path || pathname.startsWith(`${n.path}/`));
  const [open, setOpen] = useState(() => (localStorage.getItem(key) ?? (isOpen ? "1" : "")) === "1");
  return (
    <div className="section">
      <button
        type="button" aria-expanded={open || !!current}
        onClick={() => {
          localStorage.setItem(key, open ? "" : "1");
          setOpen(!open);
        }}
      >
        <Icon name={icon} />{name}<Icon name={open || current ? "down" : "chevron"} />
      </button>
      {(open || current) && (
        <ul>
          {nodes.map((n) => (
            <li key={n.path}><Go to={n.path} className={n === current ? "entry-link current" : "entry-link"}>{n.title}</Go></li>
          ))}
        </ul>
      )}
    </div>
  );
}

export function Logo(): ReactElement {
  return <img src="/-/console/icon.svg" alt="" width="24" height="24" />;
}

function Top({ onMenu, isMenuOpen }: { onMenu: () => void; isMenuOpen: boolean }): ReactElement {
  const me = useMe();
  const [, change] = useAddress();
  const isConnected = useSyncExternalStore(connection.subscribe, connection.get);
  const isMac = navigator.platform.startsWith("Mac");
  return (
    <header className="top">
      <span className="hamburger"><Button icon="menu" look="quiet" aria-label={t("Menu")} aria-expanded={isMenuOpen} onPress={onMenu} /></span>
      <button type="button" className="open-palette" onClick={() => change({ palette: "1" }, true)}>
        <Icon name="search" /><span>{t("Search or jump to …")}</span><kbd>{isMac ? "⌘K" : "Ctrl K"}</kbd>
      </button>
      <span className="space" />
      {!isConnected && <span className="offline" role="status"><Icon name="warn" />{t("No connection")}</span>}
      {me.actor && (
        <span className="acting" role="status">
          {t("{actor} works as {name}", { actor: me.actor, name: me.name })}
          <Button look="quiet" onPress={() => void signOut().then(() => location.assign("/-/console/"))}>{t("Stop")}</Button>
        </span>
      )}
      <UserMenu />
    </header>
  );
}

function UserMenu(): ReactElement {
  const me = useMe();
  const navigate = useNavigate();
  const actions: Record<string, () => void> = {
    account: () => void navigate({ to: "/$", params: { _splat: me.key.owner.url.slice(1) } }),
    security: () => void navigate({ to: "/$", params: { _splat: "auth/verify/auth" } }),
    sessions: () => void navigate({ to: "/$", params: { _splat: "auth/session" } }),
    light: () => chooseScheme("light"),
    dark: () => chooseScheme("dark"),
    auto: () => chooseScheme("light dark"),
    out: () => void signOut().finally(() => location.assign("/-/console/sign-in")),
  };
  const chosen = (name: string): string => (scheme() === name ? "✓" : "");
  const languages = Object.entries(languageNames).filter(([id]) => id !== language);
  return (
    <LazyMenu
      label={t("Account menu of {name}", { name: me.name })}
      className="button quiet user"
      button={<><Icon name="user" /><span>{me.name}</span><Icon name="down" /></>}
      onAction={(id) => (actions[id] ?? (() => chooseLanguage(id)))()}
      entries={[
        { id: "account", label: me.name, hint: me.kind },
        { id: "security", label: t("Two-factor authentication") },
        { id: "sessions", label: t("Sessions") },
        { id: "auto", label: t("System colours"), hint: chosen("light dark") },
        { id: "light", label: t("Light"), hint: chosen("light") },
        { id: "dark", label: t("Dark"), hint: chosen("dark") },
        ...languages.map(([id, label]) => ({ id, label })),
        { id: "out", label: t("Sign out") },
      ]}
    />
  );
}
