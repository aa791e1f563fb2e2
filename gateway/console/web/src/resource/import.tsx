import { useRef, useState, type ReactElement } from "react";
import { useMutation } from "@tanstack/react-query";
import { newKey, ProblemError, send } from "../api/client";
import { typeOf, type Document, type Schema } from "../api/document";
import type { components } from "../api/schema";
import { Dialog } from "../ui/dialog";
import { TextInput } from "../ui/fields";
import { Button, ProblemBox } from "../ui/parts";
import { useDocument } from "../shell/state";
import { t } from "../text/text";
import { isTimestamp, plain } from "./form-value";
import { sentence } from "./value";

type Report = components["schemas"]["Import"];

// Import takes pasted CSV, tries it without a change, and then brings it in.
export function Import(props: { path: string; body?: Schema; title: string; onClose: () => void; onDone: () => void }): ReactElement {
  const document = useDocument();
  const columns = props.body ? columnsOf(document, props.body) : [];
  const [text, setText] = useState("");
  const [tried, setTried] = useState<string>();
  const attempt = useRef({ text: "", key: "" }); // the same text is sent again with the same key
  const keyOf = (sent: string) => {
    if (attempt.current.text !== sent) attempt.current = { text: sent, key: newKey() };
    return attempt.current.key;
  };
  const sends = useMutation({
    mutationFn: async (isTrial: boolean) =>
      (await send<Report>("post", props.path, {
        body: text, type: "text/csv", query: { dry_run: isTrial ? "true" : undefined }, idempotencyKey: isTrial ? undefined : keyOf(text),
      })).data,
    onSuccess: (_, isTrial) => (isTrial ? setTried(text) : props.onDone()),
    onError: () => setTried(undefined),
  });
  const report = sends.data;
  const error = sends.error instanceof ProblemError ? sends.error : undefined;
  const canImport = tried === text && !sends.error && text !== "";
  const isDone = report && sends.variables === false;
  return (
    <Dialog title={t("Import {title}", { title: props.title })} onClose={props.onClose} wide>
      <form className="form" onSubmit={(event) => (event.preventDefault(), sends.mutate(!canImport))}>
        <TextInput
          label={t("CSV")} lines={12} mono value={text} onChange={setText} autoFocus
          hint={t("The first line names the columns. A row with an id edits that item, any other row creates one. Spreadsheets can be pasted once saved as CSV.")}
        />
        <p className="hint columns">
          {t("Columns:")} {columns.map((c) => <span key={c.name}><code>{c.name}</code>{c.required && ` (${t("required")})`} </span>)}
        </p>
        {error && error.fields.length === 0 && <ProblemBox error={error} />}
        {error && error.fields.length > 0 && (
          <table className="diff" role="alert">
            <thead><tr><th>{t("Line")}</th><th>{t("Cell")}</th><th>{t("Problem")}</th></tr></thead>
            <tbody>
              {error.fields.map((e, i) => (
                <tr key={i}>
                  <td>{e.line}</td>
                  <td><code>{cell(text, e.line, e.column) ?? e.pointer}</code></td>
                  <td>{sentence(e.message)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        {report && (
          <p className="note" role="status">
            {isDone ? t("Imported.") : t("Nothing was changed yet.")}{" "}
            {t("{created} created, {updated} changed, {unchanged} unchanged.", { created: report.count, updated: report.updated, unchanged: report.unchanged })}
          </p>
        )}
        <div className="buttons">
          {!isDone && <Button type="submit" look="primary" isPending={sends.isPending}>{canImport ? t("Import") : t("Try without a change")}</Button>}
          <Button onPress={props.onClose}>{isDone ? t("Close") : t("Cancel")}</Button>
        </div>
      </form>
    </Dialog>
  );
}

type Column = { name: string; required: boolean };

// columnsOf returns the columns that rows can have: the members of a body, with a dot before nested ones. Required ones are first.
function columnsOf(document: Document, body: Schema): Column[] {
  const collect = (schema: Schema, prefix: string, required: boolean): Column[] => {
    const own = plain(document, schema);
    if (prefix && (typeOf(own) !== "object" || !own.properties || isTimestamp(own))) return [{ name: prefix.slice(0, -1), required }];
    return Object.entries(own.properties ?? {})
      .filter(([, member]) => !/^ignored/i.test(plain(document, member).description ?? ""))
      .flatMap(([name, member]) => collect(member, `${prefix}${name}.`, !!own.required?.includes(name)));
  };
  const all = collect(body, "", false);
  return [...all.filter((c) => c.required), ...all.filter((c) => !c.required)];
}

// cell returns the text of a cell, for CSV without quotes.
function cell(text: string, line?: number, column?: number): string | undefined {
  if (!line || !column) return undefined;
  const lines = text.split("\n");
  const separator = (lines[0]!.match(/;/g)?.length ?? 0) > (lines[0]!.match(/,/g)?.length ?? 0) ? ";" : ",";
  return lines[line - 1]?.split(separator)[column - 1];
}
