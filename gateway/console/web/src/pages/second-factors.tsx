import { useMemo, useState, type ReactElement } from "react";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { encode } from "uqr";
import { newKey, send } from "../api/client";
import type { components } from "../api/schema";
import { Dialog } from "../ui/dialog";
import { TextInput } from "../ui/fields";
import { Button, Copy, notify, ProblemBox } from "../ui/parts";
import { List } from "../resource/list";
import type { ItemProps } from "../resource/item";
import { useAddress } from "../shell/state";
import { t } from "../text/text";

type Authenticator = components["schemas"]["Authenticator"];
type Code = components["schemas"]["VerifyCode"];

const path = "/auth/verify/auth";
const methods = { app: 1, passkey: 3 } as const;

// SecondFactorsPage has the caller's second factors, and adds an app or a security key step by step.
export default function SecondFactorsPage(props: ItemProps): ReactElement {
  const [search, change] = useAddress();
  const close = (): void => change({ add: undefined });
  return (
    <section className="page">
      <header className="head">
        <div><h1>{t("Two-factor authentication")}</h1><p className="mute">{t("A sign-in then needs more than your password.")}</p></div>
        <div className="actions">
          <Button icon="plus" look="primary" onPress={() => change({ add: "app" })}>{t("Add an app")}</Button>
          <Button icon="key" reason={"PublicKeyCredential" in window ? undefined : t("This browser supports passkeys only by https, or on localhost.")} onPress={() => change({ add: "passkey" })}>
            {t("Add a passkey or security key")}
          </Button>
        </div>
      </header>
      <List {...props} fixed={{}} embedded />
      {search.add === "app" && <AddApp onClose={close} />}
      {search.add === "passkey" && <AddPasskey onClose={close} />}
    </section>
  );
}

async function create(method: number, name: string): Promise<Authenticator> {
  return (await send<Authenticator>("post", path, { body: { method: { id: method }, name: name || undefined }, idempotencyKey: newKey() })).data;
}

// AddApp shows the secret as a QR code, and asks for a code of the app before the app counts.
function AddApp({ onClose }: { onClose: () => void }): ReactElement {
  const client = useQueryClient();
  const [name, setName] = useState("");
  const [token, setToken] = useState("");
  const begins = useMutation({ mutationFn: () => create(methods.app, name) });
  const verifies = useMutation({
    mutationFn: async () => {
      const own = `${path}/${begins.data!.id}`;
      const code = await send<Code>("post", `${own}/code`, { body: {} });
      await send("patch", `${own}/code/${code.data.id}`, { body: { token: token.replace(/\s/g, "") } });
      return (await send<Authenticator>("patch", own, { body: { verified: true } })).data;
    },
    onSuccess: () => client.invalidateQueries({ queryKey: ["list"] }),
  });
  const uri = begins.data?.value;
  return (
    <Dialog title={t("Add an app")} onClose={onClose}>
      {verifies.data ? (
        <Recovery codes={verifies.data.recovery_codes} onClose={onClose} />
      ) : (
        <form
          className="form" noValidate
          onSubmit={(event) => {
            event.preventDefault();
            if (uri) verifies.mutate();
            else begins.mutate();
          }}
        >
          {(begins.error ?? verifies.error) && <ProblemBox error={begins.error ?? verifies.error} />}
          {uri ? (
            <>
              <p>{t("Scan the code with the app, and type the six digits that it shows.")}</p>
              <QRCode text={uri} />
              <p className="mute">{t("Without a camera:")} <code>{new URL(uri).searchParams.get("secret")}</code> <Copy text={new URL(uri).searchParams.get("secret") ?? ""} label={t("Copy the secret")} /></p>
              <TextInput label={t("Code")} value={token} onChange={setToken} autoFocus required mono inputMode="numeric" autoComplete="one-time-code" />
            </>
          ) : (
            <TextInput label={t("Name")} value={name} onChange={setName} autoFocus placeholder={t("such as {example}", { example: t("my phone") })} />
          )}
          <div className="buttons">
            <Button type="submit" look="primary" isPending={begins.isPending || verifies.isPending}>{t("Continue")}</Button>
            <Button onPress={onClose}>{t("Cancel")}</Button>
          </div>
        </form>
      )}
    </Dialog>
  );
}

// AddPasskey lets the browser create a key, which counts at once.
function AddPasskey({ onClose }: { onClose: () => void }): ReactElement {
  const client = useQueryClient();
  const [name, setName] = useState("");
  const adds = useMutation({
    mutationFn: async () => {
      const begun = await create(methods.passkey, name);
      const options = JSON.parse(begun.value ?? "{}") as PublicKeyCredentialCreationOptionsJSON;
      const credential = await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) });
      return (await send<Authenticator>("patch", `${path}/${begun.id}`, { body: { verified: true, credential: (credential as PublicKeyCredential).toJSON() } })).data;
    },
    onSuccess: () => client.invalidateQueries({ queryKey: ["list"] }),
  });
  return (
    <Dialog title={t("Add a passkey or security key")} onClose={onClose}>
      {adds.data ? (
        <Recovery codes={adds.data.recovery_codes} onClose={onClose} />
      ) : (
        <form
          className="form" noValidate
          onSubmit={(event) => {
            event.preventDefault();
            adds.mutate();
          }}
        >
          {adds.error && <ProblemBox error={adds.error} />}
          <TextInput label={t("Name")} value={name} onChange={setName} autoFocus placeholder={t("such as {example}", { example: t("my laptop") })} />
          <div className="buttons">
            <Button type="submit" look="primary" isPending={adds.isPending}>{t("Continue")}</Button>
            <Button onPress={onClose}>{t("Cancel")}</Button>
          </div>
        </form>
      )}
    </Dialog>
  );
}

// Recovery shows the recovery codes of an account's first second factor. No other answer has them again.
function Recovery({ codes, onClose }: { codes?: string[]; onClose: () => void }): ReactElement {
  const finish = (): void => {
    notify(t("The second factor is in use."));
    onClose();
  };
  return (
    <div className="form">
      <p>{codes?.length ? t("Keep these recovery codes. Each replaces one code, once, and they are never shown again.") : t("The second factor is in use.")}</p>
      {!!codes?.length && <div className="code"><pre tabIndex={0}>{codes.join("\n")}</pre><Copy text={codes.join("\n")} label={t("Copy the recovery codes")} /></div>}
      <div className="buttons"><Button look="primary" onPress={finish}>{t("Done")}</Button></div>
    </div>
  );
}

const quietZone = 2;

function QRCode({ text }: { text: string }): ReactElement {
  const { path: squares, size } = useMemo(() => {
    const { data } = encode(text, { border: quietZone });
    return { path: data.flatMap((row, y) => row.map((on, x) => (on ? `M${x} ${y}h1v1h-1z` : ""))).join(""), size: data.length };
  }, [text]);
  return (
    <svg className="qr" viewBox={`0 0 ${size} ${size}`} role="img" aria-label={t("QR code of the secret")} shapeRendering="crispEdges">
      <rect width={size} height={size} fill="#fff" />
      <path d={squares} fill="#000" />
    </svg>
  );
}
