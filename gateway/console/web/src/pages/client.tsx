import type { ReactElement } from "react";
import { useMutation } from "@tanstack/react-query";
import { signIn } from "../api/session";
import { Badge, Button, ProblemBox } from "../ui/parts";
import { ItemPage, Overview, type ItemProps } from "../resource/item";
import { List } from "../resource/list";
import { useDocument, useMe } from "../shell/state";
import { t } from "../text/text";

// ClientPage is a client with what it has: addresses and installs. Staff can work as the client.
export default function ClientPage(props: ItemProps): ReactElement {
  const document = useDocument();
  const me = useMe();
  const id = props.ids.client_id!;
  const acts = useMutation({ mutationFn: () => signIn({ owner: { url: props.path } }), onSuccess: () => location.assign("/-/console/") });
  const [entities, installs] = [document.node("/entity"), document.node("/pxe/install")];
  const canAct = !(me.kind === "client" && me.id === id) && !me.actor;
  return (
    <ItemPage
      {...props}
      overview={(item) => (
        <>
          {item.suspended === true && <p className="note"><Badge tone="bad">{t("suspended")}</Badge> {t("All keys and sessions of the client are refused.")}</p>}
          {acts.error && <ProblemBox error={acts.error} />}
          {canAct && <div className="actions"><Button icon="user" isPending={acts.isPending} onPress={() => acts.mutate()}>{t("Work as this client")}</Button></div>}
          <Overview node={props.node} item={item} />
          {entities && <h2>{t("Addresses")}</h2>}
          {entities && <List node={entities} path="/entity" ids={{}} fixed={{ owner_id: id }} embedded />}
          {installs && <h2>{t("Installs")}</h2>}
          {installs && <List node={installs} path="/pxe/install" ids={{}} fixed={{ client: id }} embedded />}
        </>
      )}
    />
  );
}
