import { useEffect, useState, type FormEvent, type ReactElement, type ReactNode } from "react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { ProblemError, send } from "../api/client";
import { beginOpenID, meQuery, signIn, type Challenge } from "../api/session";
import { TextInput } from "../ui/fields";
import { Button, ProblemBox } from "../ui/parts";
import { Logo } from "../shell/layout";
import { useAddress } from "../shell/state";
import { useSiteName } from "../shell/theme";
import { t } from "../text/text";

type Way = "admin" | "client" | "key";

// SignIn is the page that signs a person in: by password, second factor, or with a key.
export function SignIn(): ReactElement {
  const [search, change] = useAddress();
  const [challenge, setChallenge] = useState<Challenge>();
  const way = (["client", "key"].includes(search.with ?? "") ? search.with : "admin") as Way;
  const done = useDone();
  const sends = useMutation({
    mutationFn: signIn,
    onSuccess: (next) => (next ? setChallenge(next) : done()),
  });
  useEffect(() => {
    document.title = `${t("Sign in")} · Ironplane`;
  }, []);
  if (challenge) return <SecondFactor challenge={challenge} onChallenge={setChallenge} onCancel={() => (setChallenge(undefined), sends.reset())} onDone={done} />;
  const ways: [Way, string][] = [["admin", t("Staff")], ["client", t("Customer")], ["key", t("API key")]];
  return (
    <Card title={t("Sign in")}>
      <div className="switch" role="group" aria-label={t("Sign in as")}>
        {ways.map(([id, label]) => (
          <button key={id} type="button" aria-pressed={way === id} onClick={() => (sends.reset(), change({ with: id === "admin" ? undefined : id }, true))}>{label}</button>
        ))}
      </div>
      {way === "admin" && <Providers to={search.to} />}
      <Credentials key={way} way={way} error={sends.error} isPending={sends.isPending} onSend={(body) => sends.mutate(body)} />
    </Card>
  );
}

type Provider = { id: number; name: string };

// Providers are the identity providers that staff can sign in with.
function Providers({ to }: { to?: string }): ReactElement | null {
  const all = useQuery({ queryKey: ["providers"], queryFn: async ({ signal }) => (await send<Provider[]>("get", "/auth/openid", { signal })).data });
  const begins = useMutation({ mutationFn: (provider: Provider) => beginOpenID(provider.id, to) });
  if (!all.data?.length) return null; // the other ways are there
  return (
    <div className="form">
      {begins.error && <ProblemBox error={begins.error} />}
      {all.data.map((provider) => (
        <Button
          key={provider.id} icon="key" isPending={begins.isPending} onPress={() => begins.mutate(provider)}
          reason={isSecureContext ? undefined : t("Identity providers need https, or localhost.")}
        >
          {t("Sign in with {name}", { name: provider.name })}
        </Button>
      ))}
    </div>
  );
}

// useDone returns what follows a sign-in: the page that the person wanted to see.
export function useDone(): (wanted?: string) => void {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [search] = useAddress();
  return (wanted = search.to) => {
    client.clear();
    void client.fetchQuery(meQuery).then(() => {
      const to = wanted?.startsWith("/") && !wanted.startsWith("//") ? wanted : "/";
      const [path, query] = to.split("?");
      void navigate({ to: path!, search: Object.fromEntries(new URLSearchParams(query)), replace: true });
    });
  };
}

type CredentialsProps = { way: Way; error: Error | null; isPending: boolean; onSend: (body: Record<string, unknown>) => void };

function Credentials({ way, error, isPending, onSend }: CredentialsProps): ReactElement {
  const [name, setName] = useState("");
  const [secret, setSecret] = useState("");
  const send = (event: FormEvent): void => {
    event.preventDefault();
    if (way === "key") return onSend({ key: secret.trim() });
    onSend({ type: way, [name.includes("@") || way === "client" ? "email" : "username"]: name.trim(), password: secret });
  };
  return (
    <form className="form" onSubmit={send} noValidate>
      {error && <ProblemBox error={asSignIn(error)} />}
      {way === "key" ? (
        <TextInput
          label={t("API key")} type="password" name="key" value={secret} onChange={setSecret} autoFocus required mono autoComplete="off"
          hint={t("The first admin’s key is printed at the first start.")}
        />
      ) : (
        <>
          <TextInput
            label={way === "admin" ? t("User name or email address") : t("Email address")} name="name" value={name} onChange={setName} autoFocus required
            autoComplete="username"
          />
          <TextInput label={t("Password")} type="password" name="password" value={secret} onChange={setSecret} required autoComplete="current-password" />
        </>
      )}
      <Button type="submit" look="primary" isPending={isPending}>{t("Sign in")}</Button>
    </form>
  );
}

// asSignIn leaves out what a 401 says about API keys when a person typed a password.
function asSignIn(error: Error): Error {
  return error instanceof ProblemError && error.fields.length ? new ProblemError(error.status, { detail: error.fields.map((e) => `${e.pointer.slice(1)} ${e.message}.`).join(" ") }) : error;
}

type FactorProps = { challenge: Challenge; onChallenge: (next: Challenge) => void; onCancel: () => void; onDone: () => void };

// SecondFactor asks for the code that a login needs, or for a security key.
function SecondFactor({ challenge, onChallenge, onCancel, onDone }: FactorProps): ReactElement {
  const [token, setToken] = useState("");
  const options = challenge.code.options as PublicKeyCredentialRequestOptionsJSON | undefined;
  const sends = useMutation({
    mutationFn: (answer: Record<string, unknown>) => signIn({ challenge: challenge.challenge, auth: challenge.code.auth.id, ...answer }),
    onSuccess: (next) => (next ? onChallenge(next) : onDone()),
  });
  const keys = useMutation({
    mutationFn: () => navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options!) }),
    onSuccess: (credential) => sends.mutate({ credential: (credential as PublicKeyCredential).toJSON() }),
  });
  const method = challenge.code.auth.method.name;
  return (
    <Card title={t("Second factor")}>
      <form
        className="form" noValidate
        onSubmit={(event) => {
          event.preventDefault();
          sends.mutate({ token: token.replace(/\s/g, "") });
        }}
      >
        {sends.error && <ProblemBox error={asSignIn(sends.error)} />}
        {keys.error && <p className="problem" role="alert">{t("The browser has used no key. Try again, or type a code.")}</p>}
        {options && <Button look="primary" isPending={keys.isPending} onPress={() => keys.mutate()}>{t("Use a security key or passkey")}</Button>}
        <TextInput
          label={t("Code")} name="token" value={token} onChange={setToken} autoFocus={!options} required mono inputMode="text" autoComplete="one-time-code"
          hint={t("From: {method}. A recovery code works, too.", { method })}
        />
        <Button type="submit" look={options ? "plain" : "primary"} isPending={sends.isPending}>{t("Continue")}</Button>
        <Button look="quiet" onPress={onCancel}>{t("Back")}</Button>
      </form>
    </Card>
  );
}

export function Card({ title, children }: { title: string; children: ReactNode }): ReactElement {
  return (
    <main className="sign-in">
      <div className="card">
        <p className="brand"><Logo /><span>{useSiteName()}</span></p>
        <h1>{title}</h1>
        {children}
      </div>
    </main>
  );
}
