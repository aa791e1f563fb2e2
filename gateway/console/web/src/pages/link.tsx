import { useEffect, useRef, useState, type ReactElement } from "react";
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { send } from "../api/client";
import { meQuery, signIn, takeOpenID } from "../api/session";
import { TextInput } from "../ui/fields";
import { Button, Loading, ProblemBox } from "../ui/parts";
import { t } from "../text/text";
import { Card, useDone } from "./sign-in";

// takeFragment returns what an address has behind its #, and removes it, so that no secret stays in the history.
function takeFragment(): URLSearchParams {
  const values = new URLSearchParams(location.hash.slice(1));
  history.replaceState(history.state, "", location.pathname + location.search);
  return values;
}

// SignInByLink begins a session with the code of a link, or of an identity provider. It asks somebody who is signed in, since anyone
// can send them a link of another account. A sign-in at a provider was begun in this tab.
export function SignInByLink(): ReactElement {
  const done = useDone();
  const me = useQuery(meQuery);
  const [code] = useState(() => takeFragment().get("key") ?? "");
  const [login] = useState(takeOpenID);
  const sent = useRef(false);
  const sends = useMutation({ mutationFn: () => signIn({ sso: code, verifier: login?.verifier }), onSuccess: () => done(login?.to) });
  useEffect(() => {
    if (sent.current || !code || (me.data !== null && !login)) return; // a code is valid once
    sent.current = true;
    sends.mutate();
  });
  const failed = sends.error ?? me.error;
  if (me.data && code && !login && !sent.current) {
    return (
      <Card title={t("Sign in")}>
        <p>{t("You are signed in as {name}. The link signs you in to another account.", { name: me.data.name })}</p>
        <Button
          look="primary"
          onPress={() => {
            sent.current = true;
            sends.mutate();
          }}
        >
          {t("Use the link")}
        </Button>
        <Link to="/">{t("Stay signed in")}</Link>
      </Card>
    );
  }
  return (
    <Card title={t("Sign in")}>
      {!code && <p>{t("The link is incomplete.")}</p>}
      {failed ? <ProblemBox error={failed} /> : code && <Loading />}
      {(failed || !code) && <Link to="/sign-in">{t("Sign in another way")}</Link>}
    </Card>
  );
}

// ChoosePassword sets a new password with the link of a mail.
export function ChoosePassword(): ReactElement {
  const { reset } = useParams({ strict: false });
  const isComplete = /^[0-9]+$/.test(reset ?? ""); // it becomes a part of a path
  const [token] = useState(() => takeFragment().get("token") ?? "");
  const [password, setPassword] = useState("");
  const sends = useMutation({ mutationFn: () => send("patch", `/auth/password-reset/${reset}`, { body: { token, password } }) });
  return (
    <Card title={t("Choose a password")}>
      {sends.isSuccess ? (
        <p>{t("The password is set.")} <Link to="/sign-in">{t("Sign in")}</Link></p>
      ) : (
        <form
          className="form" noValidate
          onSubmit={(event) => {
            event.preventDefault();
            sends.mutate();
          }}
        >
          {sends.error && <ProblemBox error={sends.error} />}
          <TextInput label={t("New password")} type="password" value={password} onChange={setPassword} autoFocus required autoComplete="new-password" />
          <Button type="submit" look="primary" isPending={sends.isPending} isDisabled={!token || !isComplete}>{t("Set the password")}</Button>
        </form>
      )}
    </Card>
  );
}
