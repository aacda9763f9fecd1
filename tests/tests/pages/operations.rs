//! The page of operations, which is the table of them.
use crate::reference::GENERATED;
use nigh_net::op::table::{RestRoute, Right, Row, TABLE};
use nigh_net::op::{Op, PlacementOp};
use std::fmt::Write;

/// The page.
pub fn page() -> String {
    let mut out = String::from(
        "# Operations\n\n\
         This table has every operation of the interface: the right that it needs, its routes over REST, whether the binary protocol has it\n\
         under its name, and its methods over [gRPC](grpc.md). A request needs the right on the collection that it names, or on everything if\n\
         it names none; [scopes](../guide/access.md#scopes) grant rights. \"None\" marks routes that need no API key. \"Of the operation\n\
         inside\" marks `__wc__`, which wraps another operation and needs the right of that one.\n\n\
         \"Refused\" marks operations whose feature this build lacks (partitions): the server checks the request and then refuses it, with\n\
         status 412 over REST, FAILED_PRECONDITION over gRPC and an error over the binary protocol. A server without `-keys-file` refuses the\n\
         operations on API keys in the same way, and one without `-backup-dir` and `-backup-bucket` those on backups, `vector_evict` and\n\
         `vector_restore`. Operations that are \"not available\" are answered as operations that do not exist.\n\n",
    );
    let _ = writeln!(out, "{GENERATED}");
    out.push_str("\n| Operation | Right | REST | Binary protocol | gRPC |\n|---|---|---|---|---|\n");
    for row in TABLE {
        let right = match row.right {
            _ if row.routes().any(|route| route.is_open) && row.tcp.is_none() => "none".to_owned(),
            Right::Of(right) => format!("{right:?}").to_lowercase(),
            Right::OfInner => "of the operation inside".to_owned(),
        };
        let is_refused = is_refused(row.op);
        let route = |route: &RestRoute| {
            let note = match route.is_open && row.tcp.is_some() {
                true => " (none)",
                false if is_refused => " (refused)",
                false => "",
            };
            format!("`{} {}`{note}", route.method.name(), route.path)
        };
        let routes: Vec<String> = row.routes().map(route).collect();
        let binary = match row {
            Row { tcp: None, .. } => "",
            Row { op: Op::Absent, .. } => "not available",
            Row { op: Op::KvQuery(_), .. } => "with `-kv-query`",
            _ if is_refused => "refused",
            _ => "yes",
        };
        let methods: Vec<String> = row
            .methods()
            .map(|method| match is_refused {
                true => format!("`{}` (refused)", method.name),
                false => format!("`{}`", method.name),
            })
            .collect();
        let (routes, methods) = (routes.join("<br>"), methods.join("<br>"));
        let _ = writeln!(out, "| `{}` | {right} | {routes} | {binary} | {methods} |", row.name);
    }
    out
}

/// Whether this build lacks what an operation needs, so that no request for it succeeds.
pub fn is_refused(op: Op) -> bool {
    matches!(op, Op::Placement(op) if !matches!(op, PlacementOp::Evict | PlacementOp::Restore))
}
