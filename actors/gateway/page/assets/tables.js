// Requests that run, and what tenants use.

import { byId, keep, make, say } from "./dom.js";
import { count, lasting } from "./format.js";

const REQUESTS = [
  ["Request", (one) => one.id, "id"],
  ["Phase", (one) => one.phase, "phase"],
  ["Tokens", (one) => `${count(one.output_tokens)}`, "number"],
  ["Prompt", (one) => count(one.prompt_tokens), "number"],
  ["Age", (one) => lasting(one.age_s), "number"],
  ["Where", (one) => [one.gateway, ...one.schedulers].join(" → "), ""],
  ["Model", (one) => one.model, ""],
];
const TENANT = ["Tenant", (one) => one.tenant, ""];
const TENANTS = [
  TENANT,
  ["Open", (one) => count(one.active), "number"],
  ["Requests", (one) => count(one.requests), "number"],
  ["Prompt tokens", (one) => count(one.prompt_tokens), "number"],
  ["Output tokens", (one) => count(one.output_tokens), "number"],
  ["Today", (one) => count(one.today), "number"],
  ["Refused", (one) => count(one.refused), "number"],
];

/** Show the oldest requests. */
export function showRequests({ requests, n_requests, has_tenants }) {
  const columns = has_tenants ? [REQUESTS[0], TENANT, ...REQUESTS.slice(1)] : REQUESTS;
  const hidden = n_requests - requests.length;
  say(byId("requests-count"), n_requests ? `${n_requests} open${hidden > 0 ? `, the oldest ${requests.length} shown` : ""}` : "none open");
  fill(byId("requests-table"), columns, requests, (one) => `${one.gateway} ${one.id}`);
}

/** Show the tenants, where the server tells them apart. */
export function showTenants({ tenants, has_tenants }) {
  byId("tenants").hidden = !has_tenants;
  fill(byId("tenants-table"), TENANTS, tenants, (one) => one.tenant);
}

function fill(table, columns, rows, keyOf) {
  table.hidden = !rows.length;
  if (table.dataset.columns !== String(columns.length)) {
    table.dataset.columns = columns.length;
    table.replaceChildren(make("thead", "", make("tr", "", ...columns.map(head))), make("tbody"));
  }
  keep(table.tBodies[0], rows, keyOf, () => make("tr", "", ...columns.map(([, , kind]) => make("td", kind))), (row, one) => {
    columns.forEach(([, of], index) => say(row.children[index], of(one)));
    row.dataset.phase = one.phase ?? "";
  });
}

function head([title, , kind]) {
  const cell = make("th", kind, title);
  cell.scope = "col";
  return cell;
}
