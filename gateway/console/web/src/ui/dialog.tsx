import type { ReactElement, ReactNode } from "react";
import { Dialog as AriaDialog, Heading, Modal, ModalOverlay } from "react-aria-components";
import { t } from "../text/text";
import { Button } from "./parts";

// Dialog is a panel over the page. Escape and a click beside it close it.
export function Dialog(props: { title: string; onClose: () => void; wide?: boolean; children: ReactNode }): ReactElement {
  return (
    <ModalOverlay className="overlay" isOpen isDismissable onOpenChange={(open) => !open && props.onClose()}>
      <Modal className={props.wide ? "modal wide" : "modal"}>
        <AriaDialog className="dialog">
          <header>
            <Heading slot="title" level={2}>{props.title}</Heading>
            <Button icon="close" look="quiet" aria-label={t("Close")} onPress={props.onClose} />
          </header>
          <div className="content">{props.children}</div>
        </AriaDialog>
      </Modal>
    </ModalOverlay>
  );
}
