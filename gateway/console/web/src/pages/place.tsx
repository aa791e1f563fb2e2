import { lazy, Suspense, useEffect, type ComponentType, type ReactElement } from "react";
import { useLocation } from "@tanstack/react-router";
import { Empty, Loading } from "../ui/parts";
import { ItemPage, type ItemProps } from "../resource/item";
import { LogItemPage, LogPage } from "./log";
import { List } from "../resource/list";
import { Go, useDocument } from "../shell/state";
import { t } from "../text/text";

const Template = lazy(() => import("./template"));

// designed are the pages that are made by hand. All other paths of the API get the page that follows from the document.
const designed: Record<string, ComponentType<ItemProps>> = {
  "/group/{group_id}": lazy(() => import("./group")),
  "/pxe/install/{install_id}": lazy(() => import("./install")),
  "/client/{client_id}": lazy(() => import("./client")),
  "/auth/verify/auth": lazy(() => import("./second-factors")),
  "/email/template/{template_id}": Template,
  "/pxe/boot-script/{boot_script_id}": Template,
  "/pxe/preseed/{preseed_id}": Template,
  "/pxe/shell/{shell_script_id}": Template,
  "/setting-group": lazy(() => import("./settings")),
  "/log": LogPage,
  "/log/{log_id}": LogItemPage,
};

// Place is the page of a path of the API.
export function Place(): ReactElement {
  const api = useDocument();
  const { pathname } = useLocation();
  const path = pathname.replace(/\/$/, "");
  const found = api.at(path);
  useEffect(() => {
    document.title = `${found ? (found.isItem && found.node.kind === "collection" ? `${found.node.noun} ${path.split("/").at(-1)}` : found.node.title) : t("Not found")} · Ironplane`;
  }, [found, path]);
  if (!found) {
    return (
      <section className="page">
        <Empty isPage title={t("There is no such page.")}><Go to="/">{t("Go to the overview")}</Go></Empty>
      </section>
    );
  }
  const { node, ids } = found;
  const template = found.isItem && node.itemPath ? node.itemPath : node.path;
  const Designed = designed[template];
  if (Designed) return <Suspense fallback={<Loading />}><Designed key={path} node={node} path={path} ids={ids} /></Suspense>;
  return found.isItem ? <ItemPage key={path} node={node} path={path} ids={ids} /> : <List key={path} node={node} path={path} ids={ids} />;
}
