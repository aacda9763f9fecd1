//! The OpenAPI 3.1 document of the interface.
//!
//! What is served is the checked-in file `net/openapi.json`. It is made by the rooms below, which exist in tests alone:
//! `schema` (how schemas are spelled), `values`, `requests`, `answers` and `config` (the schemas), `operation` and the tables of
//! operations (`node`, `collections`, `configurations`, `points`, `searches`, `batches`, `named`, `multi_vector`), `document` (all of it put together). A test makes it again and
//! fails when the file differs; `coverage` holds it against the router and the decoders.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod batches;
#[cfg(test)]
mod collections;
#[cfg(test)]
mod config;
#[cfg(test)]
mod configurations;
#[cfg(test)]
mod coverage;
#[cfg(test)]
mod document;
#[cfg(test)]
mod many;
#[cfg(test)]
mod multi_vector;
#[cfg(test)]
mod named;
#[cfg(test)]
mod node;
#[cfg(test)]
mod operation;
#[cfg(test)]
mod points;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod searches;
#[cfg(test)]
mod values;

/// The document as served.
pub const DOCUMENT: &str = include_str!("../../../openapi.json");
