//! The page of operations, which is the table of them.
use crate::reference::GENERATED;
use nigh_net::op::Op;
use nigh_net::op::table::{RestRoute, Right, Row, TABLE};
use std::fmt::Write;

/// The page.
pub fn page() -> String {
    let mut out = String::from(
        "# Operations\n\n\
         Every operation of the interface with the right it needs, its routes over REST, whether the binary protocol has it under its name, and its\n\
         methods over [gRPC](grpc.md). A right is needed on the collection that the request names, or on the whole node where it names none. \"None\"\n\
         stands for routes that are served without a key, \"of the operation inside\" for an envelope.\n\n\
         \"Refused\" marks operations whose features this build lacks (partitions): they check the request and then\n\
         refuse it, with status 412 over REST, FAILED_PRECONDITION over gRPC and an error over the binary protocol. A server without `-keys-file`\n\
         does so with the operations on API keys. Operations that are \"not\n\
         available\" answer that they are not registered.\n\n",
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
    matches!(op, Op::Placement(_))
}
