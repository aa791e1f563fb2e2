import { useEffect, useRef, useState, type ReactElement } from "react";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useBlocker } from "@tanstack/react-router";
import { ProblemError, send, type Answer } from "../api/client";
import type { components } from "../api/schema";
import { lacks } from "../api/session";
import { CodeArea } from "../ui/code-area";
import { TextInput } from "../ui/fields";
import { Button, Loading, needs, notify, ProblemBox } from "../ui/parts";
import { Commands } from "../resource/commands";
import { Reference } from "../resource/field";
import type { Item } from "../resource/form-value";
import { ItemPage, Overview, type ItemProps } from "../resource/item";
import { actionOf, diff, marksOf, type Mark } from "../resource/template-text";
import { sentence } from "../resource/value";
import { useDocument, useMe } from "../shell/state";
import { t } from "../text/text";

type Part = "subject" | "body" | "html";
type Texts = Partial<Record<Part, string>>;
type Kind = { parts: Part[]; preview: string; target: string; script?: components["schemas"]["TemplateDraft"]["kind"] };
type Values = Record<string, { variables: { name: string; doc: string; secret?: boolean }[]; functions?: { example: string; result: string }[] }>;

// kinds are the kinds of templates. Scripts are rendered with a profile, mails to a client.
const kinds: Record<string, Kind> = {
  "/email/template": { parts: ["subject", "body", "html"], preview: "/email/template/{id}/preview", target: "/client" },
  "/pxe/boot-script": { parts: ["body"], preview: "/pxe/profile/{id}/render", target: "/pxe/profile", script: "boot_script" },
  "/pxe/preseed": { parts: ["body"], preview: "/pxe/profile/{id}/render", target: "/pxe/profile", script: "preseed" },
  "/pxe/shell": { parts: ["body"], preview: "/pxe/profile/{id}/render", target: "/pxe/profile", script: "shell_script" },
};

const labels = (): Record<Part, string> => ({ subject: t("Subject"), body: t("Text"), html: t("HTML") });

// TemplatePage is a template with its editor.
export default function TemplatePage(props: ItemProps): ReactElement {
  const kind = kinds[props.node.path]!;
  return (
    <ItemPage
      {...props}
      overview={(item, answer) => (
        <>
          <Overview node={props.node} item={item} without={kind.parts} />
          <Editor {...props} kind={kind} answer={answer} />
        </>
      )}
    />
  );
}

type EditorProps = ItemProps & { kind: Kind; answer: Answer<Item> };

// Editor edits the texts of a template, with a preview of what is typed and its difference to what is stored.
function Editor({ node, path, kind, answer }: EditorProps): ReactElement {
  const me = useMe();
  const document = useDocument();
  const client = useQueryClient();
  const [edit, setEdit] = useState<{ base: Answer<Item>; texts: Texts }>();
  const [conflict, setConflict] = useState<{ before: Item; after: Item }>();
  const field = useRef<HTMLTextAreaElement | HTMLInputElement>(undefined);
  const area = useRef<HTMLDivElement>(null);
  const base = edit?.base ?? answer;
  const textOf = (part: Part): string => edit?.texts[part] ?? String(base.data[part] ?? "");
  const isChanged = (part: Part): boolean => textOf(part) !== String(base.data[part] ?? "");
  const changed = kind.parts.filter(isChanged);
  const required = (node.edit?.body && document.resolve(node.edit.body).required) ?? [];
  const body = {
    ...Object.fromEntries(required.map((name) => [name, base.data[name]])),
    ...Object.fromEntries(changed.map((part) => [part, part === "html" && !textOf(part) ? null : textOf(part)])),
  };
  const saves = useMutation({
    mutationFn: () => send<Item>("patch", path, { ifMatch: base.etag, body }),
    onSuccess: (saved) => {
      client.setQueryData(["item", path], saved);
      setEdit(undefined);
      setConflict(undefined);
      notify(t("Saved."));
      void client.invalidateQueries({ predicate: (q) => q.queryKey[0] === "list" });
    },
    onError: async (error) => {
      if (!(error instanceof ProblemError) || error.status !== 412) return;
      const fresh = await send<Item>("get", path);
      setConflict({ before: base.data, after: fresh.data });
      setEdit({ base: fresh, texts: Object.fromEntries(changed.map((part) => [part, textOf(part)])) });
    },
  });
  const preview = usePreview(kind, path, Object.fromEntries(kind.parts.map((part) => [part, textOf(part)])), isChanged);
  const marks = (part: Part): Mark[] => [...new Map([...preview.marks(part), ...fieldMarks(saves.error, part)].map((m) => [JSON.stringify(m), m])).values()];
  const change = (part: Part, text: string): void => {
    saves.reset();
    setEdit({ base, texts: { ...edit?.texts, [part]: text } });
  };
  useBlocker({
    shouldBlockFn: ({ current, next }) => current.pathname !== next.pathname && !confirm(t("Leave the page without saving the template?")),
    enableBeforeUnload: true,
    disabled: changed.length === 0,
  });
  const insert = (text: string): void => {
    const into = field.current ?? area.current?.querySelector("textarea");
    into?.focus();
    window.document.execCommand("insertText", false, text); // it can be undone
  };
  return (
    <form
      className="form template"
      onSubmit={(event) => {
        event.preventDefault();
        if (!saves.isPending) saves.mutate();
      }}
    >
      {conflict && (
        <div className="conflict" role="alert">
          <p>{t("Somebody else changed this item since you opened it. Your own changes are kept below.")}</p>
          {kind.parts.map((part) => <Difference key={part} label={labels()[part]} before={conflict.before[part]} after={conflict.after[part]} />)}
        </div>
      )}
      {saves.error && !conflict && !kind.parts.some((part) => fieldMarks(saves.error, part).length) && <ProblemBox error={saves.error} />}
      <div className="columns">
        <div
          ref={area} className="stack"
          onFocus={({ target }) => {
            if (target instanceof HTMLTextAreaElement || target instanceof HTMLInputElement) field.current = target;
          }}
        >
          {kind.parts.map((part) =>
            part === "subject" ? (
              <TextInput
                key={part} label={labels()[part]} value={textOf(part)} onChange={(text) => change(part, text)} mono
                error={marks(part).map((m) => `${t("Column {column}:", { column: m.column })} ${m.message}`).join(" ") || undefined}
              />
            ) : (
              <CodeArea key={part} label={labels()[part]} value={textOf(part)} onChange={(text) => change(part, text)} marks={marks(part)} />
            ),
          )}
        </div>
        <div className="stack">
          {preview.panel}
          <Variables name={kind.script ?? `email/${base.data.type}`} onInsert={insert} />
        </div>
      </div>
      {changed.length > 0 && (
        <section aria-label={t("Not saved yet")} className="stack">
          <h2>{t("Not saved yet")}</h2>
          {changed.map((part) => <Difference key={part} label={labels()[part]} before={base.data[part]} after={textOf(part)} />)}
          <Commands method="patch" path={path} body={body} etag={base.etag} />
        </section>
      )}
      <div className="buttons">
        <Button
          type="submit" look="primary" isPending={saves.isPending}
          reason={needs(lacks(node.edit!.guard, me)) ?? (changed.length === 0 ? t("Nothing has changed yet.") : undefined)}
        >
          {conflict ? t("Save over it") : t("Save")}
        </Button>
        {changed.length > 0 && <Button onPress={() => (setEdit(undefined), setConflict(undefined), saves.reset())}>{t("Discard")}</Button>}
      </div>
    </form>
  );
}

// fieldMarks returns the errors that an answer has for a part.
function fieldMarks(error: unknown, part: Part): Mark[] {
  const fields = error instanceof ProblemError ? error.fields.filter((e) => e.pointer === `/${part}`) : [];
  return fields.flatMap((e) => {
    const marks = marksOf(e.message);
    return marks.length ? marks : [{ line: 1, column: 1, message: e.message }];
  });
}

const typingPause = 300;

type Preview = { panel: ReactElement; marks: (part: Part) => Mark[] };

// usePreview asks the API what it makes of the texts, soon after they were typed. Nothing is saved.
function usePreview(kind: Kind, path: string, texts: Texts, isChanged: (part: Part) => boolean): Preview {
  const me = useMe();
  const document = useDocument();
  const [target, setTarget] = useState<unknown>();
  const [typed, setTyped] = useState(texts);
  const current = JSON.stringify(texts);
  useEffect(() => {
    const timer = setTimeout(() => setTyped(JSON.parse(current) as Texts), typingPause);
    return () => clearTimeout(timer);
  }, [current]);
  const id = Number(path.split("/").at(-1));
  const profiles = useQuery({
    queryKey: ["list", "/pxe/profile", { per_page: "1" }],
    queryFn: async ({ signal }) => (await send<Item[]>("get", "/pxe/profile", { query: { per_page: "1", sort: "name" }, signal })).data,
    enabled: !!kind.script,
  });
  const chosen = target ?? (kind.script ? profiles.data?.[0] : undefined);
  const operation = document.operations.get(`post ${kind.script ? "/pxe/profile/{profile_id}/render" : "/email/template/{template_id}/preview"}`);
  const missing = operation && lacks(operation.guard, me);
  const about = (chosen as Item | undefined)?.id;
  const to = kind.preview.replace("{id}", String(kind.script ? about : id));
  const sent = kind.script ? { drafts: [{ kind: kind.script, id, body: typed.body }] } : { ...typed, client: about === undefined ? undefined : { id: about } };
  const answer = useQuery({
    queryKey: ["preview", to, sent],
    queryFn: async ({ signal }) => (await send<Item>("post", to, { body: sent, signal })).data,
    enabled: !missing && (!kind.script || about !== undefined),
    placeholderData: keepPreviousData,
    gcTime: 0,
  });
  const files = (answer.data?.files ?? []) as components["schemas"]["RenderedFile"][];
  const file = kind.script && files.find((f) => f.id === id && f.kind.startsWith(kind.script!.replace("shell_script", "shell_")));
  const shown: [string, string | undefined][] = kind.script ? [["", file?.text]] : kind.parts.map((part) => [labels()[part], answer.data?.[part] as string | undefined]);
  const isStored = !kind.parts.some(isChanged);
  const collection = document.node(kind.target);
  const error = answer.error && !kind.parts.some((part) => fieldMarks(answer.error, part).length) ? answer.error : undefined;
  return {
    marks: (part) => (file?.error && part === "body" ? toMarks(file.error) : fieldMarks(answer.error, part)),
    panel: (
      <section aria-label={t("Preview")} className="stack">
        <h2>{t("Preview")}</h2>
        {missing && <p className="mute">{needs(missing)}</p>}
        {!missing && collection && (
          <Reference
            label={kind.script ? t("With the profile") : t("To the client")} target={collection} value={chosen} onChange={setTarget} isObject
            hint={kind.script ? t("The machine is a sample.") : t("Without a client: sample data.")} key={about === undefined ? "none" : "some"}
          />
        )}
        {error && <ProblemBox error={error} retry={() => void answer.refetch()} />}
        {!missing && answer.isPending && answer.fetchStatus !== "idle" && <Loading />}
        <div aria-live="polite" className="stack" data-stale={answer.isPlaceholderData || undefined}>
          {shown.filter(([, text]) => text !== undefined).map(([label, text]) => (
            <div key={label}>{label && <h3>{label}</h3>}<pre className="text" tabIndex={0} aria-label={t("Preview of {part}", { part: label || labels().body })}>{text}</pre></div>
          ))}
        </div>
        {!isStored && answer.data && <p className="mute">{t("The preview has what you typed. Nothing is saved yet.")}</p>}
      </section>
    ),
  };
}

function toMarks(message: string): Mark[] {
  const marks = marksOf(message);
  return marks.length ? marks : [{ line: 1, column: 1, message }];
}

// Variables lists what a template can use. A click puts it where the cursor is.
function Variables({ name, onInsert }: { name: string; onInsert: (text: string) => void }): ReactElement {
  const [text, setText] = useState("");
  const values = useQuery({
    queryKey: ["templates"],
    queryFn: async ({ signal }) => (await send<Values>("get", "/-/console/templates.json", { signal })).data,
    staleTime: Infinity,
  });
  const own = values.data?.[name];
  const all = [
    ...(own?.variables ?? []).map((v) => ({ label: v.name, action: actionOf(v.name), doc: `${v.doc}${v.secret ? ` (${t("a secret")})` : ""}` })),
    ...(own?.functions ?? []).map((f) => ({ label: f.example, action: `{{${f.example}}}`, doc: f.result })),
  ];
  const found = all.filter((v) => `${v.label} ${v.doc}`.toLowerCase().includes(text.toLowerCase()));
  return (
    <section aria-label={t("Variables")} className="stack">
      <h2>{t("Variables")}</h2>
      <TextInput label={t("Search the variables")} value={text} onChange={setText} />
      {values.error && <ProblemBox error={values.error} />}
      <ul className="variables" tabIndex={0} aria-label={t("Variables")}>
        {found.map((v) => (
          <li key={v.label}><button type="button" onClick={() => onInsert(v.action)}><code>{v.label}</code></button> <span className="mute">{sentence(v.doc)}</span></li>
        ))}
      </ul>
      {values.data && found.length === 0 && <p className="mute">{t("Nothing found.")}</p>}
    </section>
  );
}

// Difference shows the lines that differ between two texts.
function Difference({ label, before, after }: { label: string; before: unknown; after: unknown }): ReactElement | null {
  const [was, is] = [String(before ?? ""), String(after ?? "")];
  if (was === is) return null;
  return (
    <div>
      <h3>{label}</h3>
      <pre className="text difference" tabIndex={0} aria-label={t("Changes of {part}", { part: label })}>
        {diff(was, is).map((line, i) => {
          if (line.kind === "before") return <del key={i}>{line.text}{"\n"}</del>;
          if (line.kind === "after") return <ins key={i}>{line.text}{"\n"}</ins>;
          return <span key={i} className={line.kind === "gap" ? "mute" : undefined}>{line.text}{"\n"}</span>;
        })}
      </pre>
    </div>
  );
}
