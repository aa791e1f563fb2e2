import type { ReactElement } from "react";
import type { components } from "../api/schema";
import { live } from "../api/live";
import { Badge, Copy, Time } from "../ui/parts";
import { Icon } from "../ui/icons";
import { ItemPage, Overview, type ItemProps } from "../resource/item";
import { t } from "../text/text";

type Install = components["schemas"]["Install"];

const stages = ["waiting", "booting", "installing", "installed"] as const;

const pollInterval = 2000;

// needsPolling reports whether an install changes without events: its progress has none.
function needsPolling(status: Install["status"]): boolean {
  return status === "installing" || (!live.get() && ["waiting", "booting"].includes(status));
}

// InstallPage is an install with its stages, and what the machine has requested.
export default function InstallPage(props: ItemProps): ReactElement {
  return (
    <ItemPage
      {...props}
      poll={(item) => (item && needsPolling((item as unknown as Install).status) ? pollInterval : false)}
      overview={(item) => {
        const install = item as unknown as Install;
        return (
          <>
            <Stages install={install} />
            {install.error && <p className="problem" role="alert"><Icon name="warn" />{install.error}</p>}
            {install.reason && <p className="note">{install.reason}</p>}
            <Requests install={install} />
            <h2>{t("Members")}</h2>
            <Overview node={props.node} item={item} without={["requests", "error", "reason", "progress", "step"]} />
          </>
        );
      }}
    />
  );
}

function Stages({ install }: { install: Install }): ReactElement {
  const reached = install.status === "failed" || install.status === "cancelled"
    ? (install.progress > 0 ? 2 : install.started_at ? 1 : 0)
    : stages.indexOf(install.status);
  const times: Record<string, string | undefined> = {
    waiting: install.created_at.iso_8601, booting: install.started_at?.iso_8601, installed: install.status === "installed" ? install.finished_at?.iso_8601 : undefined,
  };
  return (
    <div className="stages-box">
      <ol className="stages" aria-label={t("Stages")}>
        {stages.map((stage, i) => (
          <li key={stage} className={i < reached || install.status === "installed" ? "past" : i === reached ? "now" : ""} aria-current={i === reached ? "step" : undefined}>
            <span>{t(stage)}</span>
            {times[stage] && <span className="mute"><Time at={times[stage]} /></span>}
          </li>
        ))}
      </ol>
      {install.status === "installing" && (
        <p>
          <progress max={100} value={install.progress} aria-label={t("Progress")} /> {install.progress} % <span className="mute">{install.step}</span>
        </p>
      )}
    </div>
  );
}

const tones: Record<string, string> = { failed: "bad", refused: "bad", done: "good", boot: "info", progress: "info" };

// Requests is what the machine has requested and reported, the newest first.
function Requests({ install }: { install: Install }): ReactElement | null {
  const requests = install.requests ?? [];
  return (
    <>
      <h2>{t("Timeline")}</h2>
      {requests.length === 0 && <p className="mute">{t("The machine has not been seen yet.")}</p>}
      <ol className="timeline">
        {requests.map((r, i) => (
          <li key={`${r.at.iso_8601}-${i}`} className="request">
            <span className="when"><Time at={r.at.iso_8601} /></span>
            <Badge tone={tones[r.what]}>{r.what}</Badge>
            <span className="what">{r.got}</span>
            <span className="copied mute"><code>{r.mac || r.address}</code><Copy text={r.mac || r.address} /></span>
          </li>
        ))}
      </ol>
    </>
  );
}
