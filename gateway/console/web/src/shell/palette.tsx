import { useEffect, useRef, useState, type ReactElement } from "react";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Dialog as AriaDialog, Modal, ModalOverlay } from "react-aria-components";
import { send } from "../api/client";
import { lacks } from "../api/session";
import { Icon, type IconName } from "../ui/icons";
import { t } from "../text/text";
import { useMe, type Search } from "./state";
import { useVisible } from "./layout";

type Hit = { id: string; label: string; hint: string; icon: IconName; to: string; search?: Search };

type Found = { id: number; name?: string; full_ip?: string; email?: string; owner?: { name?: string }; group?: { name?: string }; host?: { mac?: string }; status?: string };

// searched are the lists that one search looks into: addresses, servers and billing ids, clients, machines.
const searched: { path: string; icon: IconName; hint: (f: Found) => string }[] = [
  { path: "/entity", icon: "network", hint: (f) => [f.full_ip, f.owner?.name, f.group?.name].filter(Boolean).join(" · ") },
  { path: "/client", icon: "user", hint: (f) => f.email ?? "" },
  { path: "/pxe/install", icon: "disk", hint: (f) => [f.host?.mac, f.status].filter(Boolean).join(" · ") },
  { path: "/group", icon: "box", hint: () => t("IP group") },
];

const typingPause = 150;

// Palette finds pages, actions and items by their names, addresses and ids.
export default function Palette({ onClose }: { onClose: () => void }): ReactElement {
  const [text, setText] = useState("");
  const [query, setQuery] = useState("");
  const [index, setIndex] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const navigate = useNavigate();
  const pages = usePages();
  const items = useItems(query);
  useEffect(() => {
    const timer = setTimeout(() => setQuery(text.trim()), typingPause);
    return () => clearTimeout(timer);
  }, [text]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = pages.filter((p) => words.every((w) => p.label.toLowerCase().includes(w)));
  const hits = [...(query ? items.hits : []), ...matching].slice(0, 40);
  const at = Math.min(index, Math.max(hits.length - 1, 0));
  useEffect(() => list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [at]);
  const open = (hit: Hit | undefined): void => {
    if (hit) void navigate({ to: "/$", params: { _splat: hit.to.slice(1) }, search: hit.search ?? {} });
  };
  return (
    <ModalOverlay className="overlay" isOpen isDismissable onOpenChange={(isOpen) => !isOpen && onClose()}>
      <Modal className="modal palette">
        <AriaDialog className="dialog" aria-label={t("Search or jump to …")}>
          <div className="palette-field">
            <Icon name="search" />
            <input
              autoFocus role="combobox" aria-expanded="true" aria-controls="palette-hits" aria-activedescendant={hits[at] && `hit-${at}`}
              aria-label={t("Search or jump to …")} placeholder={t("Address, client, host name, MAC, billing id, page or action")} value={text}
              onChange={(event) => {
                setText(event.target.value);
                setIndex(0);
              }}
              onKeyDown={(event) => {
                const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
                if (step) {
                  event.preventDefault();
                  setIndex((at + step + hits.length) % Math.max(hits.length, 1));
                } else if (event.key === "Enter") {
                  event.preventDefault();
                  open(hits[at]);
                }
              }}
            />
          </div>
          <ul id="palette-hits" className="hits" role="listbox" aria-label={t("Results")} ref={list}>
            {hits.map((hit, i) => (
              <li key={hit.id} id={`hit-${i}`} role="option" aria-selected={i === at} onMouseMove={() => setIndex(i)} onClick={() => open(hit)}>
                <Icon name={hit.icon} /><span>{hit.label}</span><span className="mute">{hit.hint}</span>
              </li>
            ))}
          </ul>
          {hits.length === 0 && <p className="none" role="status">{items.isSearching ? t("Searching …") : t("Nothing found.")}</p>}
        </AriaDialog>
      </Modal>
    </ModalOverlay>
  );
}

function usePages(): Hit[] {
  const me = useMe();
  const visible = useVisible();
  return [
    ...visible.map((n): Hit => ({ id: n.path, label: n.title, hint: t("page"), icon: "chevron", to: n.path })),
    ...visible
      .filter((n) => n.create && !lacks(n.create.guard, me))
      .map((n): Hit => ({ id: `new${n.path}`, label: n.create!.summary, hint: t("action"), icon: "plus", to: n.path, search: { dialog: "create" } })),
    ...visible
      .flatMap((n) => n.actions.map((o) => [n, o] as const))
      .filter(([, o]) => !lacks(o.guard, me))
      .map(([n, o]): Hit => ({ id: o.id, label: o.summary, hint: t("action"), icon: "chevron", to: n.path, search: { dialog: o.id } })),
  ];
}

function useItems(query: string): { hits: Hit[]; isSearching: boolean } {
  const visible = useVisible();
  const places = searched.filter((s) => visible.some((n) => n.path === s.path));
  const mac = /^[0-9a-f]{2}([:-][0-9a-f]{2}){5}$/i.test(query) ? query : undefined;
  const found = useQuery({
    queryKey: ["search", query],
    enabled: query.length > 1,
    placeholderData: keepPreviousData,
    queryFn: async ({ signal }) => {
      const asked = places.map(async (p) => {
        const wanted = p.path === "/pxe/install" && mac ? { mac } : { q: query };
        try {
          const { data } = await send<Found[]>("get", p.path, { query: { ...wanted, per_page: "6" }, signal });
          return data.map((f): Hit => ({ id: `${p.path}/${f.id}`, label: f.name ?? `#${f.id}`, hint: p.hint(f), icon: p.icon, to: `${p.path}/${f.id}` }));
        } catch {
          return []; // one list that fails must not hide the others
        }
      });
      return (await Promise.all(asked)).flat();
    },
  });
  return { hits: found.data ?? [], isSearching: found.isFetching };
}
