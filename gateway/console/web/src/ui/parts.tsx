import { useEffect, useState, useSyncExternalStore, type ReactElement, type ReactNode } from "react";
import { ProblemError, Signal } from "../api/client";
import { t, language } from "../text/text";
import { Icon, type IconName } from "./icons";

type Look = "primary" | "plain" | "quiet" | "danger";

type ButtonProps = {
  look?: Look;
  icon?: IconName;
  reason?: string;
  type?: "button" | "submit";
  isDisabled?: boolean;
  isPending?: boolean;
  onPress?: () => void;
  "aria-label"?: string;
  "aria-expanded"?: boolean;
  children?: ReactNode;
};

// Button is a button. With a reason it does nothing but say why: by hover, to screen readers, and as a message when it is pressed.
export function Button(props: ButtonProps): ReactElement {
  const { look = "plain", icon, reason, type = "button", isDisabled, isPending, onPress, children } = props;
  return (
    <button
      type={reason ? "button" : type}
      className={`button ${look}${children ? "" : " icon-only"}`}
      disabled={isDisabled}
      aria-disabled={reason || isPending ? true : undefined}
      aria-busy={isPending || undefined}
      aria-label={props["aria-label"]}
      aria-expanded={props["aria-expanded"]}
      aria-description={reason}
      title={reason ?? (children ? undefined : props["aria-label"])}
      onClick={reason ? () => notify(reason) : onPress}
    >
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

export function needs(permission: string | undefined): string | undefined {
  return permission && t("You lack the permission {permission}.", { permission });
}

// Copy copies a text by one click.
export function Copy({ text, label }: { text: string; label?: string }): ReactElement {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  return (
    <button
      type="button"
      className="copy"
      aria-label={done ? t("Copied") : (label ?? t("Copy {text}", { text }))}
      onClick={() => void copyText(text).then(() => setDone(true))}
    >
      <Icon name={done ? "check" : "copy"} />
    </button>
  );
}

// copyText copies a text. Pages without TLS have no clipboard, so a selection stands in.
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

const tones: Record<string, string> = {
  available: "good", assigned: "info", reserved: "warn", quarantined: "mute", installed: "good", done: "good", delivered: "good", sent: "good",
  failed: "bad", cancelled: "mute", waiting: "mute", booting: "info", installing: "info", running: "info", retrying: "warn", ok: "good",
  healthy: "good", failing: "bad", silent: "bad", suspended: "bad", disabled: "bad", enabled: "good", held: "warn", online: "good", offline: "bad",
};

export function Badge({ children, tone }: { children: string; tone?: string }): ReactElement {
  return <span className={`badge ${tone ?? tones[children] ?? "mute"}`}>{children}</span>;
}

const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
const absolute = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" });
const day = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" });

// Time shows a time in the reader's zone, and the exact UTC on hover.
export function Time({ at }: { at: string }): ReactElement {
  const date = new Date(at);
  const seconds = (date.getTime() - Date.now()) / 1000;
  const near = Math.abs(seconds) < 86_400 * 2;
  return (
    <time dateTime={at} title={`${date.toISOString()} · ${absolute.format(date)}`}>
      {near ? ago(seconds) : day.format(date)}
    </time>
  );
}

function ago(seconds: number): string {
  const steps: [Intl.RelativeTimeFormatUnit, number][] = [["day", 86_400], ["hour", 3600], ["minute", 60]];
  for (const [unit, size] of steps) if (Math.abs(seconds) >= size) return relative.format(Math.round(seconds / size), unit);
  return relative.format(Math.round(seconds), "second");
}

// ProblemBox shows an error of the API with its request id.
export function ProblemBox({ error, retry }: { error: unknown; retry?: () => void }): ReactElement {
  const problem = error instanceof ProblemError ? error : undefined;
  return (
    <div className="problem" role="alert">
      <Icon name="warn" />
      <div>
        <p>{problem?.message ?? t("The console failed: {error}", { error: String(error) })}</p>
        {problem?.problem.request_id && (
          <p className="mute">
            {t("Request")} <code>{problem.problem.request_id}</code> <Copy text={problem.problem.request_id} />
          </p>
        )}
        {retry && <Button onPress={retry}>{t("Try again")}</Button>}
      </div>
    </div>
  );
}

export function Empty({ title, isPage, children }: { title: string; isPage?: boolean; children?: ReactNode }): ReactElement {
  return (
    <div className="empty">
      {isPage ? <h1>{title}</h1> : <h2>{title}</h2>}
      {children}
    </div>
  );
}

export function Loading(): ReactElement {
  return (
    <div className="loading" role="status" aria-label={t("Loading")}>
      <span /><span /><span />
    </div>
  );
}

// Code shows a command with a button that copies it.
export function Code({ text, copyLabel }: { text: string; copyLabel: string }): ReactElement {
  return (
    <div className="code">
      <pre tabIndex={0}>{text}</pre>
      <Copy text={text} label={copyLabel} />
    </div>
  );
}

const messages = new Signal<{ id: number; text: string }[]>([]);
let lastMessage = 0;

// notify shows a short message for some seconds.
export function notify(text: string): void {
  const id = ++lastMessage;
  messages.set([...messages.get(), { id, text }]);
  setTimeout(() => messages.set(messages.get().filter((m) => m.id !== id)), 5000);
}

export function Messages(): ReactElement {
  const shown = useSyncExternalStore(messages.subscribe, messages.get);
  return (
    <div className="messages" role="status" aria-live="polite">
      {shown.map((m) => (
        <p key={m.id}>{m.text}</p>
      ))}
    </div>
  );
}
