import type { ReactElement } from "react";
import { t } from "../text/text";
import { labelOf, Value } from "./value";

// Changes shows members before and after a change.
export function Changes({ changes }: { changes: { name: string; before?: unknown; after?: unknown }[] }): ReactElement {
  return (
    <table className="diff">
      <thead><tr><th>{t("Member")}</th><th>{t("Before")}</th><th>{t("After")}</th></tr></thead>
      <tbody>
        {changes.map((c) => (
          <tr key={c.name}>
            <th scope="row">{labelOf(c.name)}</th>
            <td className={c.before === undefined ? undefined : "before"}><Value name={c.name} value={c.before} full /></td>
            <td className={c.after === undefined ? undefined : "after"}><Value name={c.name} value={c.after} full /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
