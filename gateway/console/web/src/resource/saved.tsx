import { useState, type ReactElement } from "react";
import { Button as AriaButton, DialogTrigger, Popover, Dialog } from "react-aria-components";
import { TextInput } from "../ui/fields";
import { Button } from "../ui/parts";
import { Go, useAddress, type Search } from "../shell/state";
import { t } from "../text/text";

type Saved = { name: string; search: Search };

const storage = "ironplane-filters";

function read(): Record<string, Saved[]> {
  try {
    return JSON.parse(localStorage.getItem(storage) ?? "{}") as Record<string, Saved[]>;
  } catch {
    return {};
  }
}

// SavedFilters keeps the address of a list under a name, in this browser.
export default function SavedFilters({ path }: { path: string }): ReactElement {
  const [search] = useAddress();
  const [saved, setSaved] = useState(() => read()[path] ?? []);
  const [name, setName] = useState("");
  const write = (next: Saved[]): void => {
    localStorage.setItem(storage, JSON.stringify({ ...read(), [path]: next }));
    setSaved(next);
  };
  const { dialog: _, cursor: __, ids: ___, ...current } = search;
  const canSave = Object.keys(current).length > 0;
  return (
    <DialogTrigger>
      <AriaButton className="button quiet">{saved.length ? t("Views ({count})", { count: saved.length }) : t("Views")}</AriaButton>
      <Popover className="popover" offset={4}>
        <Dialog className="saved" aria-label={t("Saved views")}>
          {saved.length === 0 && <p className="mute">{t("A view keeps the filters, order and columns of this list.")}</p>}
          <ul className="plain">
            {saved.map((s) => (
              <li key={s.name}>
                <Go to={path} search={s.search}>{s.name}</Go>
                <Button icon="close" look="quiet" aria-label={t("Delete the view {name}", { name: s.name })} onPress={() => write(saved.filter((o) => o !== s))} />
              </li>
            ))}
          </ul>
          {canSave && (
            <form
              onSubmit={(event) => {
                event.preventDefault();
                if (name.trim()) write([...saved.filter((s) => s.name !== name.trim()), { name: name.trim(), search: current }]);
                setName("");
              }}
            >
              <TextInput label={t("Save this view as")} value={name} onChange={setName} />
              <Button type="submit">{t("Save")}</Button>
            </form>
          )}
        </Dialog>
      </Popover>
    </DialogTrigger>
  );
}
