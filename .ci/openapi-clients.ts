// Calls that must compile against the declarations of openapi-typescript, and some that must not. All of them are made.
import type { Client } from "openapi-fetch";
import type { components, paths } from "./nigh";

type Filter = components["schemas"]["Filter"];

/** Makes the calls; the statuses of their answers, after they were compared with what is expected. */
export async function walk(client: Client<paths>): Promise<number[]> {
    const films = { path: { name: "films" } };
    const statuses: number[] = [];
    function expect(status: number, answer: { response: { status: number } }): void {
        statuses.push(answer.response.status);
        if (answer.response.status !== status) throw new Error(`${answer.response.status} instead of ${status}: ${JSON.stringify(answer)}`);
    }
    expect(201, await client.POST("/v1/collections", { body: { name: "films", config: { dim: 4, metric: "cosine" } } }));
    expect(
        200,
        await client.POST("/v1/collections/{name}/points/batch", {
            params: films,
            body: { points: [{ id: 1, vector: [0.9, 0.1, 0, 0], metadata: { year: { kind: "int", int: 1979 }, title: "Alien" } }] },
        }),
    );
    const old: Filter = { op: "lt", field: "year", value: { kind: "int", int: 1980 } };
    const filter: Filter = { op: "and", and: [old, { op: "not", not: { op: "in", field: "year", value: [1999] } }] };
    const found = await client.POST("/v1/collections/{name}/points/search/docs", {
        params: films,
        body: { query: [1, 0, 0, 0], k: 2, filter },
    });
    expect(200, found);
    if (found.error) throw new Error(found.error.error);
    const ids: (number | string)[] = found.data.documents.map((document) => document.id);
    if (ids.join() !== "1") throw new Error(`found ${ids.join()}`);
    const film = { name: "films", id: 1 };
    // @ts-expect-error A parameter that the route does not have.
    expect(400, await client.DELETE("/v1/collections/{name}/points/{id}", { params: { path: film, query: { expected_verison: 1 } } }));
    // @ts-expect-error A search states k.
    expect(400, await client.POST("/v1/collections/{name}/points/search", { params: films, body: { query: [1, 0, 0, 0] } }));
    // @ts-expect-error No such operator.
    const wrong: Filter = { op: "near", field: "year" };
    expect(400, await client.POST("/v1/collections/{name}/points/count", { params: films, body: { filter: wrong } }));
    expect(200, await client.DELETE("/v1/collections/{name}/points/{id}", { params: { path: film, query: { expected_version: 1 } } }));
    expect(200, await client.DELETE("/v1/collections/{name}", { params: films }));
    return statuses;
}
