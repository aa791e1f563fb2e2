import type { ReactElement } from "react";
import { Dialog } from "../ui/dialog";
import { t } from "../text/text";

// Keys lists what keys do.
export default function Keys({ onClose }: { onClose: () => void }): ReactElement {
  const keys: [string, string][] = [
    ["Ctrl K, ⌘K", t("Search, or jump to a page or an action")],
    ["/", t("Search the list")],
    ["c", t("Create an item of the list")],
    ["Esc", t("Close the dialog")],
    ["?", t("Show these keys")],
  ];
  return (
    <Dialog title={t("Keys")} onClose={onClose}>
      <dl className="keys">
        {keys.map(([key, text]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{text}</dd></div>)}
      </dl>
    </Dialog>
  );
}
