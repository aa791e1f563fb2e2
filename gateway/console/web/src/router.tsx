import { createRootRoute, createRoute, createRouter, lazyRouteComponent, Outlet, redirect } from "@tanstack/react-router";
import type { QueryClient } from "@tanstack/react-query";
import type { ReactElement } from "react";
import { documentQuery, meQuery } from "./api/session";
import { Layout } from "./shell/layout";
import { parseSearch, writeSearch, type Search } from "./shell/state";
import { Loading, ProblemBox } from "./ui/parts";
import { Place } from "./pages/place";
import { Dashboard } from "./pages/dashboard";

const base = "/-/console";

// createConsole returns the router. Its addresses below /-/console/ are the API's paths: /-/console/client/5 shows /client/5.
export function createConsole(client: QueryClient) {
  const root = createRootRoute({
    component: Outlet,
    validateSearch: (search: Record<string, unknown>): Search => search as Search,
    errorComponent: Failed,
  });
  const signIn = createRoute({ getParentRoute: () => root, path: "/sign-in", component: lazyRouteComponent(() => import("./pages/sign-in"), "SignIn") });
  const link = createRoute({ getParentRoute: () => root, path: "/auth/sso", component: lazyRouteComponent(() => import("./pages/link"), "SignInByLink") });
  const reset = createRoute({
    getParentRoute: () => root, path: "/auth/password-reset/$reset", component: lazyRouteComponent(() => import("./pages/link"), "ChoosePassword"),
  });
  const shell = createRoute({
    getParentRoute: () => root,
    id: "shell",
    component: Layout,
    errorComponent: Failed,
    pendingComponent: Loading,
    beforeLoad: async ({ location }) => {
      const [me] = await Promise.all([client.ensureQueryData(meQuery), client.ensureQueryData(documentQuery)]);
      if (!me) throw redirect({ to: "/sign-in", search: { to: location.pathname === "/" ? "" : location.href } });
    },
  });
  const home = createRoute({ getParentRoute: () => shell, path: "/", component: Dashboard });
  const place = createRoute({ getParentRoute: () => shell, path: "/$", component: Place });
  return createRouter({
    routeTree: root.addChildren([signIn, link, reset, shell.addChildren([home, place])]),
    basepath: base,
    parseSearch,
    stringifySearch: writeSearch,
    defaultPreload: false,
    scrollRestoration: true,
    defaultPendingMs: 300,
  });
}

function Failed({ error }: { error: unknown }): ReactElement {
  return <main className="page"><ProblemBox error={error} retry={() => location.reload()} /></main>;
}

