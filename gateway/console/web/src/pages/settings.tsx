import { useState, type ReactElement } from "react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ProblemError, send, type Answer } from "../api/client";
import type { components } from "../api/schema";
import { lacks } from "../api/session";
import { Choice, TextInput, Tick } from "../ui/fields";
import { Button, Loading, needs, notify, ProblemBox } from "../ui/parts";
import { Changes } from "../resource/changes";
import { Commands } from "../resource/commands";
import type { ItemProps } from "../resource/item";
import { sentence } from "../resource/value";
import { useMe } from "../shell/state";
import { t } from "../text/text";

type Group = components["schemas"]["SettingGroup"];
type Setting = components["schemas"]["Setting"];

// SettingsPage has all settings. Each group is saved by itself.
export default function SettingsPage({ node }: ItemProps): ReactElement {
  const groups = useQuery({ queryKey: ["list", "/setting-group"], queryFn: async ({ signal }) => (await send<Group[]>("get", "/setting-group", { signal })).data });
  return (
    <section className="page" aria-label={t("Settings")}>
      <header className="head"><div><h1>{t("Settings")}</h1><p className="mute">{t("Every process follows within a second.")}</p></div></header>
      {groups.isPending && <Loading />}
      {groups.error && <ProblemBox error={groups.error} retry={() => void groups.refetch()} />}
      {groups.data?.map((g) => <SettingGroup key={g.id} id={g.id} name={g.name} guard={node.edit?.guard ?? ""} />)}
    </section>
  );
}

function SettingGroup({ id, name, guard }: { id: number; name: string; guard: string }): ReactElement {
  const path = `/setting-group/${id}`;
  const group = useQuery({ queryKey: ["item", path], queryFn: ({ signal }) => send<Group>("get", path, { signal }) });
  return (
    <section className="panel" aria-label={name}>
      <h2>{name}</h2>
      {group.isPending && <Loading />}
      {group.error && <ProblemBox error={group.error} />}
      {group.data && <GroupForm key={group.data.etag} answer={group.data} path={path} guard={guard} />}
    </section>
  );
}

function GroupForm({ answer, path, guard }: { answer: Answer<Group>; path: string; guard: string }): ReactElement {
  const me = useMe();
  const client = useQueryClient();
  const [texts, setTexts] = useState<Record<string, string>>({});
  const [conflict, setConflict] = useState<{ name: string; before: unknown; after: unknown }[]>();
  const changed = answer.data.settings.filter((s) => texts[s.slug] !== undefined && texts[s.slug] !== s.text);
  const body = { settings: changed.map((s) => ({ slug: s.slug, text: texts[s.slug] })) };
  const sends = useMutation({
    mutationFn: () => send<Group>("patch", path, { ifMatch: answer.etag, body }),
    onSuccess: async () => {
      notify(t("Saved."));
      await client.invalidateQueries({ queryKey: ["item", path] });
    },
    onError: async (error) => {
      if (!(error instanceof ProblemError) || error.status !== 412) return;
      const fresh = await send<Group>("get", path);
      setConflict(fresh.data.settings.flatMap((s) => {
        const before = answer.data.settings.find((o) => o.slug === s.slug)?.text;
        return before === s.text ? [] : [{ name: s.name, before, after: s.text }];
      }));
    },
  });
  const errors = sends.error instanceof ProblemError ? sends.error.fields : [];
  const errorOf = (s: Setting): string | undefined => {
    const index = changed.findIndex((c) => c.slug === s.slug);
    return sentence(errors.filter((e) => e.pointer.startsWith(`/settings/${index}`) || e.pointer.endsWith(s.slug)).map((e) => e.message).join(" "));
  };
  return (
    <form
      className="form" noValidate
      onSubmit={(event) => {
        event.preventDefault();
        sends.mutate();
      }}
    >
      {conflict && (
        <div className="conflict" role="alert">
          <p>{t("Somebody else changed this item since you opened it.")}</p>
          <Changes changes={conflict} />
          <Button onPress={() => void client.invalidateQueries({ queryKey: ["item", path] })}>{t("Load the settings again")}</Button>
        </div>
      )}
      {sends.error && !conflict && <ProblemBox error={sends.error} />}
      <div className="fields">
        {answer.data.settings.map((s) => (
          <SettingField key={s.slug} setting={s} text={texts[s.slug] ?? s.text} error={errorOf(s)} onChange={(text) => setTexts({ ...texts, [s.slug]: text })} />
        ))}
      </div>
      {changed.length > 0 && <Commands method="patch" path={path} body={body} etag={answer.etag} />}
      <div className="buttons">
        <Button type="submit" look="primary" isPending={sends.isPending} reason={needs(lacks(guard, me)) ?? (changed.length ? undefined : t("Nothing has changed yet."))}>
          {t("Save")}
        </Button>
      </div>
    </form>
  );
}

function SettingField({ setting, text, error, onChange }: { setting: Setting; text: string; error?: string; onChange: (text: string) => void }): ReactElement {
  const label = setting.name;
  const hint = [bounds(setting.validator), setting.default && t("Default: {text}.", { text: setting.default })].filter(Boolean).join(" ") || undefined;
  if (setting.validator?.includes("readonly")) {
    return <div className="field"><span className="legend">{label}</span><code>{text || "–"}</code><span className="hint">{t("From the configuration of the processes.")}</span></div>;
  }
  if (setting.type === "Checkbox") return <Tick label={label} value={text === "1"} onChange={(on) => onChange(on ? "1" : "0")} error={error} />;
  if (setting.type === "Select") {
    const options = (setting.options ?? "").split(",").map((o) => o.trim()).filter(Boolean);
    return <Choice label={label} hint={hint} error={error} value={text} onChange={onChange} options={options.map((id) => ({ id, label: id }))} />;
  }
  return <TextInput label={label} hint={hint} error={error} value={text} onChange={onChange} lines={setting.type === "Textarea" ? 4 : undefined} />;
}

// bounds says what a validator such as integer|min:1|max:100 allows.
function bounds(validator = ""): string | undefined {
  const [min, max] = [/min:(\d+)/.exec(validator)?.[1], /max:(\d+)/.exec(validator)?.[1]];
  if (!min || !max) return undefined;
  return validator.includes("integer") ? t("From {min} to {max}.", { min, max }) : t("{min} to {max} characters.", { min, max });
}
