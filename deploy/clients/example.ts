// An example of a client in TypeScript. It compiles if the generated types match the API.
import type { components, operations } from "../../bin/clients/ironplane.js";

type Entity = components["schemas"]["IPEntity"];

const made: operations["createIPEntity"]["requestBody"]["content"]["application/json"] = {
  group: { id: 1 },
  v4: { address: "192.0.2.10", gateway: "192.0.2.1" },
};

const edited: components["schemas"]["UpdateIPEntityBody"] = { nickname: null, vlan: 120 };

const filters: operations["listIPEntities"]["parameters"]["query"] = { group_id: 7, sort: "-name", per_page: 100 };

const list: operations["listIPEntities"]["responses"][200]["content"]["application/json"] = [];
const first: Entity | undefined = list[0];

// @ts-expect-error an entity needs a group
const groupless: components["schemas"]["CreateIPEntityBody"] = {};

// @ts-expect-error null clears in an edit alone
const cleared: components["schemas"]["CreateIPEntityBody"] = { group: { id: 1 }, vlan: null };

export const all = [made, edited, filters, first, groupless, cleared];
