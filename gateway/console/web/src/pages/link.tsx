import { useEffect, useRef, useState, type ReactElement } from "react";
import { useMutation } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { send } from "../api/client";
import { signIn } from "../api/session";
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

// SignInByLink begins a session with the code of a link.
export function SignInByLink(): ReactElement {
  const done = useDone();
  const [code] = useState(() => takeFragment().get("key") ?? "");
  const sent = useRef(false);
  const sends = useMutation({ mutationFn: () => signIn({ sso: code }), onSuccess: done });
  useEffect(() => {
    if (sent.current || !code) return; // a code is valid once
    sent.current = true;
    sends.mutate();
  });
  return (
    <Card title={t("Sign in")}>
      {!code && <p>{t("The link is incomplete.")}</p>}
      {sends.error ? <ProblemBox error={sends.error} /> : code && <Loading />}
      {(sends.error || !code) && <Link to="/sign-in">{t("Sign in another way")}</Link>}
    </Card>
  );
}

// ChoosePassword sets a new password with the link of a mail.
export function ChoosePassword(): ReactElement {
  const { reset } = useParams({ strict: false });
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
          <Button type="submit" look="primary" isPending={sends.isPending} isDisabled={!token}>{t("Set the password")}</Button>
        </form>
      )}
    </Card>
  );
}
