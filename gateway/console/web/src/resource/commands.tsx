import { useState, type ReactElement } from "react";
import { useQuery } from "@tanstack/react-query";
import { send } from "../api/client";
import { toCommand, toCurl, type Commands as Table } from "../api/commands";
import type { Method } from "../api/document";
import { Code } from "../ui/parts";
import { useDocument } from "../shell/state";
import { t } from "../text/text";

type Props = { method: Method; path: string; body?: unknown; etag?: string };

// Commands shows a request as a command of ironplane and of curl.
export function Commands(request: Props): ReactElement {
  const document = useDocument();
  const [isOpen, setOpen] = useState(false);
  const table = useQuery({
    queryKey: ["commands"],
    queryFn: async ({ signal }) => (await send<Table>("get", "/-/console/commands.json", { signal })).data,
    enabled: isOpen,
    staleTime: Infinity,
  });
  const operation = document.matching(request.method, request.path);
  const command = operation && table.data?.[operation.id];
  const printed = isOpen && command ? toCommand(command, operation, request) : undefined;
  return (
    <details className="command" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t("The same as a command")}</summary>
      {printed && <Code text={printed.text} copyLabel={t("Copy the command of {program}", { program: "ironplane" })} />}
      {printed?.readsFiles && <p className="hint">{t("Only one secret can come from standard input. Put each other one into the file that the command names.")}</p>}
      {isOpen && <Code text={toCurl(request)} copyLabel={t("Copy the command of {program}", { program: "curl" })} />}
    </details>
  );
}
