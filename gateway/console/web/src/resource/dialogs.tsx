import { useState, type ReactElement } from "react";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { ProblemError, send, type Answer } from "../api/client";
import { fill, type Node, type Operation } from "../api/document";
import { Dialog } from "../ui/dialog";
import { Loading, notify, ProblemBox } from "../ui/parts";
import { Go, useAddress, useDocument } from "../shell/state";
import { t } from "../text/text";
import { Form } from "./form";
import type { Item } from "./form-value";
import { pathOf, sentence, Value } from "./value";
import { Import } from "./import";

type Props = { node: Node; path: string; ids: Record<string, string>; item?: Item; etag?: string };

// Dialogs shows the dialog that the page's address names.
export default function Dialogs({ node, path, ids, item, etag }: Props): ReactElement | null {
  const [search, change] = useAddress();
  const client = useQueryClient();
  const navigate = useNavigate();
  const close = (): void => change({ dialog: undefined, ids: undefined });
  const refresh = (): Promise<void> => client.invalidateQueries({ predicate: (q) => q.queryKey[0] !== "document" && q.queryKey[0] !== "me" });
  const dialog = search.dialog ?? "";
  if (dialog === "create" && node.create) {
    const done = ({ data }: Answer<Item>): void => {
      notify(t("{noun} created.", { noun: capital(node.noun) }));
      void refresh();
      if (hasSecret(data)) return change({ dialog: "created" });
      void navigate({ to: "/$", params: { _splat: `${path}/${data.id}`.slice(1) }, search: {} });
    };
    return <Create node={node} path={path} onDone={done} onClose={close} />;
  }
  if (dialog === "edit" && node.edit && item) {
    return (
      <Dialog title={t("Edit {noun}", { noun: node.noun })} onClose={close} wide>
        <Form<Item>
          method="patch" path={path} body={node.edit.body} item={item} etag={etag} edits label={t("Save")} onCancel={close}
          reload={() => send<Item>("get", path)}
          onDone={() => {
            notify(t("Saved."));
            void refresh();
            close();
          }}
        />
      </Dialog>
    );
  }
  if (dialog === "edit-many" && node.edit && search.ids) {
    const several = `${path}/${search.ids}`;
    return (
      <Dialog title={t("Edit {count} items", { count: search.ids.split(",").length })} onClose={close} wide>
        <p className="mute">{t("Only the fields that you fill in are changed. All items are changed, or none.")}</p>
        <Form<Item[]>
          method="patch" path={several} body={node.edit.body} item={{}} edits label={t("Save")} onCancel={close}
          onDone={({ data }) => {
            notify(t("{count} items changed.", { count: data.length ?? 1 }));
            void refresh();
            close();
          }}
        />
      </Dialog>
    );
  }
  if ((dialog === "delete" || dialog === "delete-many") && node.remove) {
    const target = dialog === "delete" ? path : `${path}/${search.ids}`;
    return (
      <Delete
        title={dialog === "delete" ? t("Delete {name}", { name: String(item?.name ?? node.noun) }) : t("Delete {count} items", { count: search.ids?.split(",").length ?? 0 })}
        path={target}
        canTry={node.remove.parameters.some((p) => p.name === "dry_run")}
        etag={dialog === "delete" ? etag : undefined}
        onClose={close}
        onDone={(message) => {
          notify(message);
          void refresh();
          if (dialog === "delete") void navigate({ to: "/$", params: { _splat: fill(node.path, ids).slice(1) }, search: {} });
          else close();
        }}
      />
    );
  }
  if (dialog === "import" && node.create?.acceptsCSV) return <Import path={path} body={node.create.body} title={node.title} onClose={close} onDone={() => void refresh()} />;
  const action = [...node.itemActions, ...node.actions].find((o) => o.id === dialog);
  if (action) return <Action action={action} ids={ids} onClose={close} onDone={() => void refresh()} />;
  return null;
}

// hasSecret reports whether an answer shows a value that no other answer will show again.
function hasSecret(item: Item): boolean {
  return ["key", "secret", "value", "recovery_codes"].some((member) => item[member] !== undefined && member !== "value") || String(item.value ?? "").startsWith("otpauth:");
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// leftOut are members that only other callers send: those who sign in, or who change their own password.
const leftOut: Record<string, string[]> = {
  createAPIKey: ["auth", "device", "email", "password", "type", "username"],
  createAdmin: ["current_password"],
  createClient: ["current_password", "disabled"],
};

// Create is the form of a new item. An answer with a secret stays until the reader closes it.
function Create(props: { node: Node; path: string; onDone: (answer: Answer<Item>) => void; onClose: () => void }): ReactElement {
  const [created, setCreated] = useState<Item>();
  const { node, path } = props;
  if (created) {
    return (
      <Dialog title={t("{noun} created.", { noun: capital(node.noun) })} onClose={props.onClose}>
        <p>{t("Copy the secret now: it is never shown again.")}</p>
        <Result value={created} operation={node.create!} />
      </Dialog>
    );
  }
  return (
    <Dialog title={node.create!.summary} onClose={props.onClose} wide>
      <Form<Item>
        method="post" path={path} body={node.create!.body} without={leftOut[node.create!.id]} label={t("Create")} onCancel={props.onClose}
        onDone={(answer) => (hasSecret(answer.data) ? setCreated(answer.data) : props.onDone(answer))}
      />
    </Dialog>
  );
}

// Delete asks the server first what stands in the way.
function Delete(props: { title: string; path: string; canTry: boolean; etag?: string; onClose: () => void; onDone: (message: string) => void }): ReactElement {
  const document = useDocument();
  const trial = useQuery({
    queryKey: ["delete", props.path],
    queryFn: ({ signal }) => send<{ message?: string }>("delete", props.path, { query: { dry_run: "true" }, signal }),
    enabled: props.canTry,
    gcTime: 0,
    staleTime: 0,
  });
  const obstacles = trial.error instanceof ProblemError ? trial.error.fields.filter((e) => e.existing) : [];
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      {props.canTry && trial.isPending && <Loading />}
      {trial.error && (
        <>
          <ProblemBox error={trial.error} retry={() => void trial.refetch()} />
          <ul className="problems">
            {obstacles.map((e) => {
              const path = pathOf(document, e.pointer.slice(1), e.existing!);
              return <li key={e.pointer}>{path ? <Go to={path}>{e.existing!.name}</Go> : e.existing!.name} {e.message}</li>;
            })}
          </ul>
        </>
      )}
      {(trial.data || !props.canTry) && (
        <Form<{ message?: string }>
          method="delete" path={props.path} etag={props.etag} label={t("Delete")} danger onCancel={props.onClose}
          onDone={({ data }) => props.onDone(data?.message ?? t("Deleted."))}
        >
          <p>{props.canTry ? t("Nothing stands in the way. The log keeps what the item was.") : t("This cannot be undone.")}</p>
        </Form>
      )}
    </Dialog>
  );
}

// Action sends any other operation, and shows its answer.
function Action(props: { action: Operation; ids: Record<string, string>; onClose: () => void; onDone: () => void }): ReactElement {
  const { action } = props;
  const [answer, setAnswer] = useState<unknown>();
  return (
    <Dialog title={action.summary} onClose={props.onClose} wide={!!action.body}>
      {answer !== undefined ? (
        <Result value={answer} operation={action} />
      ) : (
        <Form<unknown>
          method={action.method} path={fill(action.path, props.ids)} body={action.body} label={action.summary.split(/[:,]/)[0]!}
          danger={action.method === "delete"} onCancel={props.onClose}
          onDone={({ data }) => {
            props.onDone();
            const message = (data as { message?: string } | undefined)?.message;
            if (message && Object.keys(data as object).length === 1) {
              notify(message);
              props.onClose();
            } else setAnswer(data ?? {});
          }}
        >
          <p className="mute">{sentence(action.description.split(" Needs the permission")[0]?.split(" Adds one item")[0])}</p>
        </Form>
      )}
    </Dialog>
  );
}

function Result({ value, operation }: { value: unknown; operation: Operation }): ReactElement {
  return (
    <div className="result" role="status">
      <Value name="result" schema={operation.answer} value={value} full />
    </div>
  );
}
