import type { ReactElement, ReactNode } from "react";
import { Button, Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";
import { Icon } from "./icons";

export type Entry = { id: string; label: ReactNode; hint?: string };

export type PopupMenuProps = {
  label?: string; // for screen readers, if the button's content does not say it
  button: ReactNode;
  className: string;
  entries: Entry[];
  onAction?: (id: string) => void;
  selected?: string[];
  onSelect?: (ids: string[]) => void;
  isOpen?: boolean; // whether it opens at once
};

// PopupMenu is a button with a menu. With selected, its entries can be ticked.
export default function PopupMenu(props: PopupMenuProps): ReactElement {
  const { selected, onSelect, onAction } = props;
  return (
    <MenuTrigger defaultOpen={props.isOpen}>
      <Button className={props.className} aria-label={props.label}>{props.button}</Button>
      <Popover className="popover" offset={4} placement="bottom end">
        <Menu
          className="options" items={props.entries} onAction={(key) => onAction?.(String(key))}
          selectionMode={selected ? "multiple" : "none"} selectedKeys={selected}
          onSelectionChange={(keys) => keys !== "all" && onSelect?.([...keys].map(String))}
        >
          {(entry) => (
            <MenuItem id={entry.id} textValue={typeof entry.label === "string" ? entry.label : entry.id}>
              {selected && <Icon name="check" />}{entry.label} {entry.hint && <span className="mute">{entry.hint}</span>}
            </MenuItem>
          )}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}
