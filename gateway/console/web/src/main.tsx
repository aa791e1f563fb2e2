import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { createConsole } from "./router";
import { applyScheme } from "./shell/scheme";
import { language } from "./text/text";
import "./style/base.css";
import "./style/controls.css";
import "./style/pages.css";

applyScheme();
document.documentElement.lang = language;

const client = new QueryClient({ defaultOptions: { queries: { retry: false, staleTime: 5_000 } } });
const router = createConsole(client);

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);
