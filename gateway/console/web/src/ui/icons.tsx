import type { ReactElement } from "react";

const paths = {
  plus: "M8 3v10M3 8h10",
  copy: "M6 6V3h7v7h-3M3 6h7v7H3z",
  check: "M3 8.5 6.5 12 13 4.5",
  chevron: "M6 4l4 4-4 4",
  down: "M4 6l4 4 4-4",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM11 11l3 3",
  close: "M4 4l8 8M12 4l-8 8",
  edit: "M3 13l1-3.5L11 2.5l2.5 2.5-7 7z",
  trash: "M3 4.5h10M6 4V2.5h4V4M4.5 4.5l.5 9h6l.5-9",
  menu: "M2.5 4h11M2.5 8h11M2.5 12h11",
  sort: "M5 6l3-3 3 3M5 10l3 3 3-3",
  up: "M4 10l4-4 4 4",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.5 3.5l1 1M11.5 11.5l1 1M12.5 3.5l-1 1M4.5 11.5l-1 1",
  user: "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14c.6-3 3-4 5.5-4s4.9 1 5.5 4",
  filter: "M2.5 4h11M4.5 8h7M6.5 12h3",
  warn: "M8 2.5 14.5 13.5h-13zM8 6.5v3.5M8 11.8v.4",
  network: "M8 2v4M3 14v-3h10v3M8 6v5M6 2h4v4H6z",
  server: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.1M5 11h.1",
  home: "M2.5 7.5 8 3l5.5 4.5V13.5h-11z",
  key: "M10.5 9a3.5 3.5 0 1 0-3.3-2.3L2.5 11.5v2h2.5v-1.5h1.5v-1.5L8.8 8.8",
  gear: "M8 10.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4zM8 1.8v2M8 12.2v2M1.8 8h2M12.2 8h2M3.6 3.6 5 5M11 11l1.4 1.4M12.4 3.6 11 5M5 11l-1.4 1.4",
  box: "M2.5 5 8 2.3 13.5 5v6L8 13.700 2.5 11zM2.5 5 8 7.8 13.5 5M8 7.8v5.9",
  disk: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 9a1 1 0 1 0 0-2 1 1 0 0 0 0 2z",
  log: "M4 2.5h8v11H4zM6 5.5h4M6 8h4M6 10.5h2.5",
  out: "M9.5 3h-6v10h6M7 8h7M11.5 5.5 14 8l-2.5 2.5",
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }): ReactElement {
  return (
    <svg className="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}
