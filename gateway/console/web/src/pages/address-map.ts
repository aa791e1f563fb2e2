// The map of an address space: blocks of 256 addresses, each with what lies where.

export type Entity = {
  id: number;
  name: string;
  full_ip: string;
  status: "available" | "assigned" | "reserved" | "quarantined";
  owner?: { id: number; name?: string; server?: { name?: string } };
  note?: string;
  v4?: { address: string; range_end?: string };
  v6?: { address: string };
};

export type Cell = { address: string; entity?: Entity };

export type Block = { prefix: string; cells: Cell[]; covered?: Entity }; // covered: one entity is the whole block, or more

const blockSize = 256;
const maxBlocksOfEntity = 4; // an entity of more blocks is shown as one row

export function toNumber(address: string): number {
  return address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
}

export function toAddress(n: number): string {
  return [24, 16, 8, 0].map((bits) => Math.floor(n / 2 ** bits) % 256).join(".");
}

// spanOf returns the first and the last address of an entity of IPv4.
export function spanOf(entity: Entity): [number, number] | undefined {
  if (!entity.v4) return undefined;
  const [address, bits] = entity.v4.address.split("/");
  const first = toNumber(address!);
  if (bits) return [first, first + 2 ** (32 - Number(bits)) - 1];
  return [first, entity.v4.range_end ? toNumber(entity.v4.range_end) : first];
}

// blocksOf returns the blocks in which entities lie, and the entities that are too large for a block.
export function blocksOf(entities: Entity[]): { blocks: Block[]; large: Entity[] } {
  const blocks = new Map<number, Cell[]>();
  const large: Entity[] = [];
  for (const entity of entities) {
    const span = spanOf(entity);
    if (!span || span[1] - span[0] >= blockSize * maxBlocksOfEntity) {
      large.push(entity);
      continue;
    }
    for (let n = span[0]; n <= span[1]; n++) {
      const base = n - (n % blockSize);
      let cells = blocks.get(base);
      if (!cells) {
        cells = Array.from({ length: blockSize }, (_, i) => ({ address: toAddress(base + i) }));
        blocks.set(base, cells);
      }
      cells[n - base]!.entity = entity;
    }
  }
  const sorted = [...blocks].sort(([a], [b]) => a - b);
  return { blocks: sorted.map(([base, cells]) => ({ prefix: `${toAddress(base)}/24`, cells })), large };
}
