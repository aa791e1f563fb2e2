import type { ReactElement } from "react";
import { typeOf, type Document, type Schema } from "../api/document";
import { Badge, Copy, Time } from "../ui/parts";
import { Go, useDocument } from "../shell/state";
import { t } from "../text/text";

type Item = Record<string, unknown>;

const acronyms: Record<string, string> = {
  ip: "IP", mac: "MAC", vlan: "VLAN", id: "ID", pxe: "PXE", dhcp: "DHCP", url: "URL", cidrs: "CIDRs", ssh: "SSH", iso: "ISO", v4: "IPv4",
  v6: "IPv6", http: "HTTP", html: "HTML", css: "CSS", at: "at", os: "OS", api: "API", sftp: "SFTP", tftp: "TFTP", tls: "TLS", ssl: "SSL",
};

// labelOf returns a member's name for people: pxe_dhcp_server is "PXE DHCP server".
export function labelOf(member: string): string {
  const words = member.replace(/([a-z])([A-Z])/g, "$1_$2").toLowerCase().split(/[_ ]/);
  const text = words.map((word) => acronyms[word] ?? word).join(" ").replace(/ at$/, "");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// sentence returns a text with a capital and a full stop.
export function sentence(text: string | undefined): string | undefined {
  if (!text) return undefined;
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.:!?)]$/.test(capital) ? capital : `${capital}.`;
}

export function isTime(value: unknown): value is { iso_8601: string } {
  return typeof value === "object" && value !== null && "iso_8601" in value;
}

// pathOf returns the page of an item that a member refers to.
export function pathOf(document: Document, member: string, value: Item): string | undefined {
  if (typeof value.url === "string" && value.url.startsWith("/")) return value.url;
  const target = value.id && value.missing !== true ? document.target(member) : undefined;
  return target && `${target.path}/${value.id}`;
}

const copied = /(^|_)(address|full_ip|mac|ip|gateway|email|hostname|host|slug|billing_id|subnet_mask|request_id|url|prefix)$/;

// Value shows a member of an item. With full it shows nested members as well.
export function Value(props: { name: string; schema?: Schema; value: unknown; full?: boolean }): ReactElement {
  const document = useDocument();
  const { name, value, full } = props;
  const schema = props.schema && document.resolve(props.schema);
  if (value === undefined || value === null || value === "") return <span className="mute">–</span>;
  if (typeof value === "boolean") return value ? <Badge tone="info">{t("yes")}</Badge> : <span className="mute">{t("no")}</span>;
  if (isTime(value)) return <Time at={value.iso_8601} />;
  if (Array.isArray(value)) return <Values name={name} schema={schema?.items} values={value} full={full} />;
  if (typeof value === "object") return <Members name={name} schema={schema} item={value as Item} full={full} />;
  const text = String(value);
  if (schema?.enum || name === "status" || name === "state") return <Badge>{text}</Badge>;
  if (typeOf(schema ?? {}) === "integer") return <IntegerValue name={name} value={text} />;
  if (text.includes("\n")) return full ? <pre className="text" tabIndex={0}>{text}</pre> : <span className="cut">{text.split("\n")[0]}…</span>;
  if (copied.test(name)) {
    return (
      <span className="copied">
        <code>{text}</code>
        <Copy text={text} />
      </span>
    );
  }
  return <span className={full ? undefined : "cut"} title={full ? undefined : text}>{text}</span>;
}

function IntegerValue({ name, value }: { name: string; value: string }): ReactElement {
  const document = useDocument();
  const target = name.endsWith("_id") && !name.startsWith("billing") ? document.target(name) : undefined;
  return target ? <Go to={`${target.path}/${value}`}>{value}</Go> : <span className="number">{value}</span>;
}

function Values({ name, schema, values, full }: { name: string; schema?: Schema; values: unknown[]; full?: boolean }): ReactElement {
  if (values.length === 0) return <span className="mute">–</span>;
  if (values.every((v) => typeof v !== "object")) {
    return full ? (
      <ul className="plain">{values.map((v, i) => <li key={i}><code>{String(v)}</code></li>)}</ul>
    ) : (
      <span className="cut">{values.join(", ")}</span>
    );
  }
  if (!full) return <span className="number">{values.length}</span>;
  return (
    <ol className="plain">
      {values.map((v, i) => (
        <li key={i}><Value name={name.replace(/s$/, "")} schema={schema} value={v} full /></li>
      ))}
    </ol>
  );
}

function Members({ name, schema, item, full }: { name: string; schema?: Schema; item: Item; full?: boolean }): ReactElement {
  const document = useDocument();
  const label = item.name ?? item.slug ?? (item.id !== undefined ? `${item.id}` : undefined);
  const path = pathOf(document, name, item);
  const rest = Object.entries(item).filter(([member, v]) => !["id", "name", "url"].includes(member) && v !== undefined && typeof v !== "function");
  const link = path ? <Go to={path}>{String(label)}</Go> : label !== undefined && <span>{String(label)}</span>;
  if (!full) {
    if (link) return link;
    if (typeof item.count === "number") return <span className="number">{item.count}</span>;
    const first = rest.find(([, v]) => typeof v !== "object");
    return first ? <Value name={first[0]} value={first[1]} /> : <span className="mute">–</span>;
  }
  if (rest.length === 0) return link || <span className="mute">–</span>;
  return (
    <div className="nested">
      {link}
      <dl>
        {rest.map(([member, v]) => (
          <div key={member}>
            <dt>{labelOf(member)}</dt>
            <dd><Value name={member} schema={schema?.properties?.[member]} value={v} full /></dd>
          </div>
        ))}
      </dl>
    </div>
  );
}
