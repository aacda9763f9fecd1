//! Defines the rows of the [table](super::table), and how they are made.

use crate::op::Action;
use crate::op::identities::Op;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name of the operation. The binary protocol uses this name if it has the operation, and the audit log shows it.
    pub name: &'static str,
    /// The value by which codecs choose a decoder.
    pub op: Op,
    /// The right that it needs.
    pub right: Right,
    /// How REST calls it; two routes at most.
    pub rest: [Option<RestRoute>; 2],
    /// Where its arguments in the binary protocol name a collection; `None` if the protocol does not have the operation.
    pub tcp: Option<CollectionAt>,
    /// How gRPC calls it; two methods at most.
    pub grpc: [Option<GrpcMethod>; 2],
}

/// The right that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// The operation needs this right.
    Of(Action),
    /// It needs the right of the operation inside.
    OfInner,
}

/// Where the arguments of the binary protocol name the collection on which the right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionAt {
    /// Nowhere: the right is needed on the node as a whole, which only the pattern `*` grants.
    Nowhere,
    /// `s8 collection` comes first.
    First,
    /// `s8 collection` comes after a byte of flags.
    AfterFlags,
    /// `s16 collection` comes first; an empty one stands for the node as a whole.
    FirstLong,
    /// The arguments are changes of aliases, `u32 n` and then `s16 alias, s16 collection, u8 delete` for each. The right is needed on all aliases,
    /// and on the collections that these are to stand for.
    Aliases,
}

/// A method of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcMethod {
    /// Its name, without that of the service.
    pub name: &'static str,
    /// The names on which its right is needed.
    pub on: GrpcScope,
    /// Whether it is answered by a stream of messages, and not by one message.
    pub is_streamed: bool,
}

/// The names on which the right of a method of gRPC is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcScope {
    /// No right is needed: the method is served to clients without an API key.
    Open,
    /// The node as a whole.
    Node,
    /// The collection, or the alias, that the first field of its request names.
    Collection,
    /// All collections and aliases that its request names.
    Names,
}

/// A route of REST. The right is needed on the collection that `{name}` or the alias that `{alias}` stands for, or on the collections and aliases that
/// the body names, or else on the node as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestRoute {
    /// Its method. A route for `GET` also serves `HEAD`.
    pub method: Verb,
    /// Its path, with `{name}` (a collection), `{alias}`, `{id}` (a point) and `{space}` where it names one.
    pub path: &'static str,
    /// The query parameters that it takes; any other is refused.
    pub parameters: &'static [&'static str],
    /// Whether it is served to clients without an API key.
    pub is_open: bool,
    /// Whether the body names the collections or aliases that the right is needed on.
    pub is_named_in_body: bool,
}

/// A method of HTTP that the interface uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the methods of HTTP")]
pub enum Verb {
    Delete,
    Get,
    Patch,
    Post,
    Put,
}

impl Verb {
    /// Its name in HTTP.
    pub const fn name(self) -> &'static str {
        match self {
            Verb::Delete => "DELETE",
            Verb::Get => "GET",
            Verb::Patch => "PATCH",
            Verb::Post => "POST",
            Verb::Put => "PUT",
        }
    }
}

/// Makes the row of an operation that no transport has yet.
pub(super) const fn row(name: &'static str, op: Op, right: Action) -> Row {
    Row { name, op, right: Right::Of(right), rest: [None; 2], tcp: None, grpc: [None; 2] }
}

impl Row {
    pub(super) const fn tcp(mut self, at: CollectionAt) -> Row {
        self.tcp = Some(at);
        self
    }

    pub(super) const fn route(mut self, route: RestRoute) -> Row {
        self.rest[if self.rest[0].is_none() { 0 } else { 1 }] = Some(route);
        self
    }

    pub(super) const fn rest(self, method: Verb, path: &'static str) -> Row {
        self.route(RestRoute { method, path, parameters: &[], is_open: false, is_named_in_body: false })
    }

    /// Adds a route that is served to clients without an API key.
    pub(super) const fn open(self, path: &'static str) -> Row {
        let method = Verb::Get;
        self.route(RestRoute { method, path, parameters: &[], is_open: true, is_named_in_body: false })
    }

    /// Adds a route whose body names the collections or aliases that its right is needed on.
    pub(super) const fn rest_on_body(self, method: Verb, path: &'static str) -> Row {
        self.route(RestRoute { method, path, parameters: &[], is_open: false, is_named_in_body: true })
    }

    pub(super) const fn method(mut self, name: &'static str, on: GrpcScope, is_streamed: bool) -> Row {
        self.grpc[if self.grpc[0].is_none() { 0 } else { 1 }] = Some(GrpcMethod { name, on, is_streamed });
        self
    }

    pub(super) const fn grpc(self, name: &'static str) -> Row {
        self.method(name, GrpcScope::Collection, false)
    }

    pub(super) const fn grpc_stream(self, name: &'static str) -> Row {
        self.method(name, GrpcScope::Collection, true)
    }

    pub(super) const fn grpc_on_names(self, name: &'static str) -> Row {
        self.method(name, GrpcScope::Names, false)
    }

    pub(super) const fn grpc_on_node(self, name: &'static str) -> Row {
        self.method(name, GrpcScope::Node, false)
    }

    /// Adds a method that is served to clients without an API key.
    pub(super) const fn grpc_open(self, name: &'static str) -> Row {
        self.method(name, GrpcScope::Open, false)
    }

    /// Sets the query parameters of the routes that the row has so far.
    pub(super) const fn takes(mut self, parameters: &'static [&'static str]) -> Row {
        if let Some(route) = &mut self.rest[0] {
            route.parameters = parameters;
        }
        if let Some(route) = &mut self.rest[1] {
            route.parameters = parameters;
        }
        self
    }

    /// The right that one of its routes needs; `None` if everybody may use it.
    pub fn right_of(&self, route: &RestRoute) -> Option<Action> {
        match self.right {
            _ if route.is_open => None,
            Right::Of(right) => Some(right),
            // No route has an operation inside.
            Right::OfInner => Some(Action::Admin),
        }
    }

    /// Its routes of REST.
    pub fn routes(&self) -> impl Iterator<Item = &RestRoute> {
        self.rest.iter().flatten()
    }

    /// Its methods of gRPC.
    pub fn methods(&self) -> impl Iterator<Item = &GrpcMethod> {
        self.grpc.iter().flatten()
    }
}
