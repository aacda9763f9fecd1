// Calls that must compile against the declarations of openapi-typescript, and some that must not.
import createClient from "openapi-fetch";
import type { components, paths } from "./nigh";

const client = createClient<paths>({ baseUrl: "http://127.0.0.1" });
type Filter = components["schemas"]["Filter"];

export async function walk(): Promise<(number | string)[]> {
    const films = { path: { name: "films" } };
    await client.POST("/v1/collections", { body: { name: "films", config: { dim: 4, metric: "cosine" } } });
    await client.POST("/v1/collections/{name}/points/batch", {
        params: films,
        body: { points: [{ id: 1, vector: [0.9, 0.1, 0, 0], metadata: { year: { kind: "int", int: 1979 }, title: "Alien" } }] },
    });
    const recent: Filter = { op: "gt", field: "year", value: { kind: "int", int: 1980 } };
    const filter: Filter = { op: "and", and: [recent, { op: "not", not: { op: "in", field: "year", value: [1999] } }] };
    const { data, error } = await client.POST("/v1/collections/{name}/points/search/docs", {
        params: films,
        body: { query: [1, 0, 0, 0], k: 2, filter },
    });
    if (error) throw new Error(error.error);
    await client.DELETE("/v1/collections/{name}/points/{id}", {
        params: { path: { name: "films", id: 3 }, query: { expected_version: 4 } },
    });
    // @ts-expect-error A parameter that the route does not have.
    await client.DELETE("/v1/collections/{name}/points/{id}", { params: { path: { name: "films", id: 3 }, query: { expected_verison: 4 } } });
    // @ts-expect-error A search states k.
    await client.POST("/v1/collections/{name}/points/search", { params: films, body: { query: [1] } });
    // @ts-expect-error No such operator.
    const wrong: Filter = { op: "near", field: "year" };
    void wrong;
    return data.documents.map((document) => document.id);
}
