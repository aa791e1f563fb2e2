import { useEffect, useRef, useState, type ReactElement, type ReactNode } from "react";
import { useMutation } from "@tanstack/react-query";
import { newKey, ProblemError, send, type Answer } from "../api/client";
import type { Method, Schema } from "../api/document";
import { Button, ProblemBox } from "../ui/parts";
import { useDocument } from "../shell/state";
import { t } from "../text/text";
import { Changes } from "./changes";
import { Commands } from "./commands";
import { Fields } from "./field";
import { differences, initial, plain, toBody, toChange, withRequired, type Item } from "./form-value";
import { sentence } from "./value";

type FormProps<T> = {
  method: Method;
  path: string;
  body?: Schema;
  item?: Item; // what the form begins with
  without?: string[]; // members that the form leaves out
  edits?: boolean; // send what differs from item only
  etag?: string;
  label: string;
  danger?: boolean;
  reload?: () => Promise<Answer<Item>>; // reads the item again after a 412
  onDone: (answer: Answer<T>) => void;
  onCancel?: () => void;
  children?: ReactNode;
};

// Form sends a body to an operation. It shows errors at their fields, keeps the Idempotency-Key while it tries again, and after a 412
// shows what somebody else changed.
export function Form<T>(props: FormProps<T>): ReactElement {
  const document = useDocument();
  const schema = props.body ? leaveOut(plain(document, props.body), props.without ?? []) : {};
  const [base, setBase] = useState({ item: props.item ?? {}, etag: props.etag });
  const [value, setValue] = useState<Item>(() => initial(document, schema, props.item));
  const [conflict, setConflict] = useState<{ name: string; before: unknown; after: unknown }[]>();
  const key = useRef(newKey());
  const top = useRef<HTMLDivElement>(null);
  const before = initial(document, schema, base.item);
  const changes = props.edits ? toChange(document, schema, before, value) : {};
  const unchanged = props.edits && Object.keys(changes).length === 0;
  const body = props.body && (props.edits ? withRequired(document, schema, changes, value) : (toBody(document, schema, value) ?? {}));
  const sends = useMutation({
    mutationFn: () =>
      send<T>(props.method, props.path, {
        body,
        ifMatch: props.etag && base.etag,
        idempotencyKey: props.method === "post" ? key.current : undefined,
      }),
    onSuccess: (answer) => {
      key.current = newKey();
      props.onDone(answer);
    },
    onError: (error) => {
      if (error instanceof ProblemError && error.status === 412 && props.reload) void showConflict(props.reload);
    },
  });
  const showConflict = async (reload: () => Promise<Answer<Item>>): Promise<void> => {
    const fresh = await reload();
    setConflict(differences(base.item, fresh.data));
    const own = toChange(document, schema, before, value);
    setValue({ ...initial(document, schema, fresh.data), ...Object.fromEntries(Object.keys(own).map((name) => [name, value[name]])) });
    setBase({ item: fresh.data, etag: fresh.etag });
  };
  const error = sends.error instanceof ProblemError ? sends.error : undefined;
  useEffect(() => {
    if (!error) return;
    const field = top.current?.querySelector<HTMLElement>("[aria-invalid=true], [data-invalid] button, [data-invalid] input");
    (field ?? top.current?.querySelector<HTMLElement>(".problem"))?.focus();
  }, [error]);
  return (
    <form
      className="form"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        setConflict(undefined);
        if (!sends.isPending) sends.mutate();
      }}
    >
      <div ref={top}>
        {conflict && <Conflict changes={conflict} />}
        {sends.error && !conflict && <FormProblem error={sends.error} schema={schema} />}
        {props.children}
        {schema.properties && <Fields schema={schema} pointer="" value={value} onChange={setValue} errors={error?.fields ?? []} />}
      </div>
      <Commands method={props.method} path={props.path} body={body} etag={props.etag && base.etag} />
      <div className="buttons">
        <Button type="submit" look={props.danger ? "danger" : "primary"} isPending={sends.isPending} reason={unchanged ? t("Nothing has changed yet.") : undefined}>
          {conflict ? t("Save over it") : props.label}
        </Button>
        {props.onCancel && <Button onPress={props.onCancel}>{t("Cancel")}</Button>}
      </div>
    </form>
  );
}

function leaveOut(schema: Schema, names: string[]): Schema {
  return { ...schema, properties: schema.properties && Object.fromEntries(Object.entries(schema.properties).filter(([name]) => !names.includes(name))) };
}

// FormProblem shows an error, and the field errors that have no field in the form.
function FormProblem({ error, schema }: { error: Error; schema: Schema }): ReactElement {
  const fields = error instanceof ProblemError ? error.fields : [];
  const elsewhere = fields.filter((e) => !schema.properties?.[e.pointer.split("/")[1] ?? ""]);
  if (fields.length > 0 && elsewhere.length === 0) {
    return (
      <p className="problem" role="alert" tabIndex={-1}>
        {fields.length === 1 ? t("One field needs a change.") : t("{count} fields need a change.", { count: fields.length })}
      </p>
    );
  }
  return (
    <>
      <ProblemBox error={error} />
      {elsewhere.length > 0 && (
        <ul className="problems">
          {elsewhere.map((e) => <li key={e.pointer + e.code}><code>{e.pointer}</code> {sentence(e.message)}</li>)}
        </ul>
      )}
    </>
  );
}

function Conflict({ changes }: { changes: { name: string; before: unknown; after: unknown }[] }): ReactElement {
  return (
    <div className="conflict" role="alert" tabIndex={-1}>
      <p>{t("Somebody else changed this item since you opened it. Your own changes are kept below.")}</p>
      <Changes changes={changes} />
    </div>
  );
}
