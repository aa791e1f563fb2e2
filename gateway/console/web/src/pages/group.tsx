import { useRef, type KeyboardEvent, type ReactElement } from "react";
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, json, send } from "../api/client";
import { lacks } from "../api/session";
import { Dialog } from "../ui/dialog";
import { Badge, Button, Empty, Loading, needs, notify, ProblemBox } from "../ui/parts";
import { ItemPage, Overview, type ItemProps } from "../resource/item";
import { Commands } from "../resource/commands";
import { Form } from "../resource/form";
import type { Item } from "../resource/form-value";
import { Go, useAddress, useDocument, useMe } from "../shell/state";
import { t } from "../text/text";
import { blocksOf, type Block, type Cell, type Entity } from "./address-map";

const perPage = 1000;

// GroupPage is an IP group with the map of its address space.
export default function GroupPage(props: ItemProps): ReactElement {
  const id = Number(props.ids.group_id);
  return (
    <ItemPage
      {...props}
      hide={["utilization"]}
      overview={(item) => (
        <>
          <Usage id={id} />
          <AddressMap id={id} />
          <h2>{t("Members")}</h2>
          <Overview node={props.node} item={item} without={["entitiesCount"]} />
        </>
      )}
    />
  );
}

// Usage shows how full a group is.
function Usage({ id }: { id: number }): ReactElement | null {
  const usage = useQuery({
    queryKey: ["item", `/group/${id}/utilization`],
    queryFn: () => json(api.GET("/group/{group_id}/utilization", { params: { path: { group_id: id } } })),
  });
  if (!usage.data) return null;
  const { used, free, reserved, quarantined, largest_free_block: largest } = usage.data;
  const parts: [string, number, string][] = [
    ["assigned", used, t("Assigned")], ["reserved", reserved, t("Reserved")], ["quarantined", quarantined, t("Quarantined")], ["available", free, t("Free")],
  ];
  return (
    <div className="usage">
      <svg className="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">
        {bars(parts.map(([status, n]) => [status, n])).map((b) => <rect key={b.status} className={b.status} x={b.x} width={b.width} height="10" />)}
      </svg>
      <ul className="legend-list">
        {parts.map(([status, n, label]) => (
          <li key={status}><Go to="/entity" search={{ group_id: String(id), status }}><i className={`dot ${status}`} />{label} <strong>{n}</strong></Go></li>
        ))}
        {largest.v4 && <li>{t("Largest free block")} <code>{largest.v4}</code></li>}
      </ul>
    </div>
  );
}

function bars(parts: [string, number][]): { status: string; x: number; width: number }[] {
  const total = parts.reduce((sum, [, n]) => sum + n, 0) || 1;
  let x = 0;
  return parts.map(([status, n]) => {
    const width = (n / total) * 1000;
    x += width;
    return { status, x: x - width, width };
  });
}

// AddressMap shows which addresses are used, reserved, quarantined and free. A click on a free one assigns it.
function AddressMap({ id }: { id: number }): ReactElement {
  const me = useMe();
  const document = useDocument();
  const [search, change] = useAddress();
  const pages = useInfiniteQuery({
    queryKey: ["list", "/entity", "map", id],
    initialPageParam: "",
    queryFn: ({ pageParam, signal }) =>
      send<Entity[]>("get", "/entity", { query: { group_id: String(id), sort: "address", per_page: String(perPage), cursor: pageParam }, signal }),
    getNextPageParam: (last) => last.next,
  });
  if (pages.isPending) return <Loading />;
  if (pages.error) return <ProblemBox error={pages.error} retry={() => void pages.refetch()} />;
  const entities = pages.data.pages.flatMap((p) => p.data);
  const bulk = document.operations.get("post /group/{group_id}/entity/bulk");
  if (entities.length === 0) {
    return (
      <Empty title={t("This group has no addresses yet.")}>
        {bulk && <Button look="primary" icon="plus" reason={needs(lacks(bulk.guard, me))} onPress={() => change({ dialog: bulk.id })}>{t("Add addresses")}</Button>}
        {bulk && <Commands method="post" path={`/group/${id}/entity/bulk`} body={bulk.example} />}
      </Empty>
    );
  }
  const { blocks, large } = blocksOf(entities);
  const chosen = entities.find((e) => String(e.id) === search.assign);
  return (
    <>
      <h2>{t("Address space")}</h2>
      {blocks.map((block) => <BlockMap key={block.prefix} block={block} onAssign={(e) => change({ assign: String(e.id) })} />)}
      {large.length > 0 && (
        <ul className="large">
          {large.map((e) => (
            <li key={e.id}><Go to={`/entity/${e.id}`}><code>{e.full_ip}</code></Go> <Badge>{e.status}</Badge> {e.owner?.name}</li>
          ))}
        </ul>
      )}
      {pages.hasNextPage && <Button isPending={pages.isFetchingNextPage} onPress={() => void pages.fetchNextPage()}>{t("Show more addresses")}</Button>}
      {chosen && <Assign entity={chosen} onClose={() => change({ assign: undefined })} />}
    </>
  );
}

const columns = 32;

// BlockMap is a grid with a cell for each address. One presses Tab once to reach it, and the arrow keys to move within it.
function BlockMap({ block, onAssign }: { block: Block; onAssign: (entity: Entity) => void }): ReactElement {
  const grid = useRef<HTMLDivElement>(null);
  const onKey = (event: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    const cells = [...(grid.current?.querySelectorAll<HTMLElement>("[data-at]") ?? [])];
    const at = cells.findIndex((c) => c === window.document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const wanted = Number(cells[at]!.dataset.at) + step;
    const next = step > 0 ? cells.find((c) => Number(c.dataset.at) >= wanted) : cells.findLast((c) => Number(c.dataset.at) <= wanted);
    next?.focus();
  };
  const first = block.cells.findIndex((c) => c.entity);
  return (
    <figure className="block">
      <figcaption><code>{block.prefix}</code></figcaption>
      <div className="cells" role="group" aria-label={t("Addresses of {prefix}", { prefix: block.prefix })} ref={grid} onKeyDown={onKey}>
        {block.cells.map((cell, at) => <MapCell key={cell.address} cell={cell} at={at} isFirst={at === first} onAssign={onAssign} />)}
      </div>
    </figure>
  );
}

type CellProps = { cell: Cell; at: number; isFirst: boolean; onAssign: (entity: Entity) => void };

function MapCell({ cell, at, isFirst, onAssign }: CellProps): ReactElement {
  const [, change] = useAddress();
  const { entity } = cell;
  if (!entity) return <span className="cell" title={t("{address}: not in the group", { address: cell.address })} />;
  const who = [entity.owner?.name, entity.owner?.server?.name, entity.note].filter(Boolean).join(" · ");
  const label = `${entity.full_ip}: ${entity.status}${who ? ` · ${who}` : ""}`;
  return (
    <button
      type="button" className={`cell ${entity.status}`} data-at={at} tabIndex={isFirst ? 0 : -1} title={label} aria-label={label}
      onClick={() => (entity.status === "available" ? onAssign(entity) : change({ assign: String(entity.id) }))}
    />
  );
}

// Assign gives a free entity to a client, and shows what another one is.
function Assign({ entity, onClose }: { entity: Entity; onClose: () => void }): ReactElement {
  const document = useDocument();
  const me = useMe();
  const client = useQueryClient();
  const edit = document.operations.get("patch /entity/{entity_id}");
  const item = useQuery({ queryKey: ["item", `/entity/${entity.id}`, "map"], queryFn: ({ signal }) => send<Item>("get", `/entity/${entity.id}`, { signal }), gcTime: 0 });
  const body = edit?.body && document.resolve(edit.body);
  const picked = body && { ...body, required: ["owner"], properties: { owner: body.properties!.owner!, nickname: body.properties!.nickname!, vlan: body.properties!.vlan! } };
  const lacking = edit && lacks(edit.guard, me);
  return (
    <Dialog title={entity.status === "available" ? t("Assign {address}", { address: entity.full_ip }) : entity.full_ip} onClose={onClose}>
      <p><Badge>{entity.status}</Badge> {entity.owner && <Go to={`/client/${entity.owner.id}`}>{entity.owner.name ?? entity.owner.id}</Go>} {entity.note}</p>
      <p><Go to={`/entity/${entity.id}`}>{t("Open the page of {name}", { name: entity.name })}</Go></p>
      {item.isPending && <Loading />}
      {lacking && <p className="mute">{needs(lacking)}</p>}
      {entity.status === "available" && picked && item.data && !lacking && (
        <Form<Item>
          method="patch" path={`/entity/${entity.id}`} body={picked} item={item.data.data} etag={item.data.etag} edits label={t("Assign")} onCancel={onClose}
          reload={() => send<Item>("get", `/entity/${entity.id}`)}
          onDone={() => {
            notify(t("{address} is assigned.", { address: entity.full_ip }));
            void client.invalidateQueries({ queryKey: ["list"] });
            void client.invalidateQueries({ queryKey: ["item"] });
            onClose();
          }}
        />
      )}
    </Dialog>
  );
}
