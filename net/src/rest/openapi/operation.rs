//! One documented operation, and how it is written down.

use super::schema::named;
use crate::op::table::{RestRoute, Row, TABLE};
use serde_json::{Map, Value, json};

/// A row of the tables of operations.
pub struct Operation {
    /// Method, path and query parameters.
    pub route: &'static RestRoute,
    pub id: &'static str,
    tag: &'static str,
    summary: &'static str,
    about: &'static str,
    /// Collection of the example.
    collection: &'static str,
    body: Map<String, Value>,
    body_required: bool,
    answers: Vec<(u16, Value)>,
}

/// An operation of a route of the table, which must be there, without body or answers yet. The errors that follow from those (400 from parameters and bodies, 401
/// and 429 from the need of a key, 413 from bodies) are added when it is written down.
pub fn operation(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
) -> Operation {
    let routes = || TABLE.iter().flat_map(Row::routes);
    let route = routes().find(|route| (route.method.name(), route.path) == (method, path));
    Operation {
        route: route.unwrap_or_else(|| panic!("the table has no route {method} {path}")),
        id,
        tag,
        summary,
        about: "",
        collection: "films",
        body: Map::new(),
        body_required: true,
        answers: Vec::new(),
    }
}

fn content(schema: &Value, examples: &[(&str, Value)]) -> Value {
    let examples: Map<String, Value> =
        examples.iter().map(|(name, value)| ((*name).to_owned(), json!({"value": value}))).collect();
    json!({"schema": schema, "examples": examples})
}

impl Operation {
    pub fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    /// The collection of the example, when it is not `films`.
    pub fn on(mut self, collection: &'static str) -> Self {
        self.collection = collection;
        self
    }

    /// A JSON body of a schema of the components, with examples by name.
    pub fn body(mut self, schema: &str, examples: &[(&str, Value)]) -> Self {
        self.body.insert("application/json".to_owned(), content(&named(schema), examples));
        self
    }

    pub fn optional_body(mut self) -> Self {
        self.body_required = false;
        self
    }

    /// A binary body; its example in characters, each of which is a byte below 128.
    pub fn binary(mut self, about: &str, example: &str) -> Self {
        let schema = json!({"type": "string", "format": "binary", "description": about});
        let media = content(&schema, &[("binary", example.into())]);
        self.body.insert("application/octet-stream".to_owned(), media);
        self
    }

    /// The answer of a request that succeeds, with an example for each of the body's.
    pub fn answer(self, status: u16, about: &str, schema: &Value, examples: &[(&str, Value)]) -> Self {
        self.answer_as(status, about, "application/json", schema, examples)
    }

    /// The same in another media type.
    pub fn answer_as(
        mut self,
        status: u16,
        about: &str,
        media: &str,
        schema: &Value,
        examples: &[(&str, Value)],
    ) -> Self {
        let answer = json!({"description": about, "content": {media: content(schema, examples)}});
        self.answers.push((status, answer));
        self
    }

    /// Statuses of the shared error answers, beyond those that follow from the rest.
    pub fn errors(mut self, statuses: &[u16]) -> Self {
        self.answers.extend(statuses.iter().map(|status| (*status, error(*status))));
        self
    }

    /// The errors of a batch, which say how far it got.
    pub fn batch_errors(mut self, statuses: &[u16]) -> Self {
        for status in statuses {
            let example = json!({"error": "what is wrong with the point", "committed": 1});
            let content = content(&named("BatchError"), &[("batch", example)]);
            let answer = json!({"description": "As elsewhere; `committed` points before that one are processed.",
                "content": {"application/json": content}});
            self.answers.push((*status, answer));
        }
        self
    }

    fn parameters(&self) -> Vec<Value> {
        let in_path = [
            (
                "{name}",
                "name",
                "Collection, or an alias of one on routes under `points` and `query`.",
                named("CollectionName"),
                json!(self.collection),
            ),
            ("{alias}", "alias", "The alias.", named("CollectionName"), json!("catalogue")),
            ("{space}", "space", "The vector space.", super::schema::string(), json!("title")),
            (
                "{id}",
                "id",
                "The point: an integer in plain decimal, or a string in collections with `ids` `string`.",
                super::schema::point_id(),
                json!(1),
            ),
        ];
        let in_path = in_path.into_iter().filter(|(place, ..)| self.route.path.contains(place)).map(
            |(_, name, about, schema, example)| {
                json!({"name": name, "in": "path", "required": true, "description": about,
                    "schema": schema, "example": example})
            },
        );
        let in_query = self
            .route
            .parameters
            .iter()
            .map(|name| json!({"$ref": format!("#/components/parameters/{name}")}));
        in_path.chain(in_query).collect()
    }

    /// The path of the example.
    pub fn example_path(&self) -> String {
        self.route
            .path
            .replace("{name}", self.collection)
            .replace("{alias}", "catalogue")
            .replace("{space}", "title")
            .replace("{id}", "1")
    }

    /// The operation object of the document.
    pub fn render(&self) -> Value {
        let parameters = self.parameters();
        let mut answers = self.answers.clone();
        let mut may = |status: u16| {
            if answers.iter().all(|(known, _)| *known != status) {
                answers.push((status, error(status)));
            }
        };
        if !parameters.is_empty() || !self.body.is_empty() {
            may(400);
        }
        if !self.body.is_empty() {
            may(413);
            may(415);
        }
        if !self.route.is_open {
            may(401);
            may(429);
            may(500);
        }
        may(503);
        answers.sort_by_key(|(status, _)| *status);
        let answers: Map<String, Value> =
            answers.into_iter().map(|(status, answer)| (status.to_string(), answer)).collect();
        let mut object = json!({"operationId": self.id, "tags": [self.tag], "summary": self.summary});
        if !self.about.is_empty() {
            object["description"] = self.about.into();
        }
        if self.route.is_open {
            object["security"] = json!([]);
        }
        if !parameters.is_empty() {
            object["parameters"] = parameters.into();
        }
        if !self.body.is_empty() {
            object["requestBody"] = json!({"required": self.body_required, "content": self.body});
        }
        object["responses"] = answers.into();
        object
    }
}

/// The shared error answers: status, name, description, example.
const ERRORS: [(u16, &str, &str, &str); 11] = [
    (
        400,
        "BadRequest",
        "The request is wrong; the text names what.",
        "invalid JSON body: unknown field \"nmae\"; it must be one of name, config at line 1 column 7",
    ),
    (401, "Unauthorized", "No key, a wrong one, or one without the right.", "unauthorized"),
    (404, "NotFound", "No such collection or point.", "unknown collection \"films\""),
    (409, "Conflict", "It exists already, or has another version.", "collection \"films\" already exists"),
    (
        412,
        "Unmet",
        "The node was started without what this needs.",
        "no object store is configured on this node",
    ),
    (
        413,
        "TooLarge",
        "The body or a payload is too large.",
        "request body too large: at most 33554432 bytes",
    ),
    (
        415,
        "Unsupported",
        "The body is in a form that is not read.",
        "content-encoding \"br\" is not supported; it must be gzip or identity, and stand alone",
    ),
    (
        429,
        "Exhausted",
        "A quota or rate of the collection is used up, or a limit of the API key. With a limit of the API key there is `Retry-After`.",
        "rate limited: the API key may send 100 requests per second; try again in 13 ms",
    ),
    (500, "Internal", "A fault of the server; its log says which.", "internal error"),
    (503, "Unavailable", "Retry later.", "busy: too many requests in flight"),
    (507, "Full", "Disk or memory of the server is full.", "insufficient storage: the disk is full"),
];

fn error(status: u16) -> Value {
    let Some((_, name, ..)) = ERRORS.iter().find(|error| error.0 == status) else {
        panic!("the status {status} has no shared answer");
    };
    json!({"$ref": format!("#/components/responses/{name}")})
}

/// The shared error answers.
pub fn responses() -> Map<String, Value> {
    let response = |(status, name, about, example): (u16, &str, &str, &str)| {
        let content = content(&named("Error"), &[("error", json!({"error": example}))]);
        let mut response = json!({"description": about, "content": {"application/json": content}});
        if [429, 503].contains(&status) {
            response["headers"] =
                json!({"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}});
        }
        (name.to_owned(), response)
    };
    ERRORS.into_iter().map(response).collect()
}
