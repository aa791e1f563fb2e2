import { lazy, Suspense, useState, type ReactElement } from "react";
import type { PopupMenuProps } from "./menu";

const PopupMenu = lazy(() => import("./menu"));

// LazyMenu is a PopupMenu whose code is loaded with the first press, so that it is no part of the first load.
export function LazyMenu(props: PopupMenuProps): ReactElement {
  const [isWanted, setWanted] = useState(false);
  const button = (
    <button type="button" className={props.className} aria-label={props.label} aria-haspopup="menu" onClick={() => setWanted(true)}>{props.button}</button>
  );
  return isWanted ? <Suspense fallback={button}><PopupMenu {...props} isOpen /></Suspense> : button;
}
