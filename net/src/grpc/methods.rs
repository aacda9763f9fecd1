//! The methods by their paths.

use crate::op::table::{GrpcMethod, Row, grpc_methods};
use std::collections::HashMap;

/// The package of the service.
pub const PACKAGE: &str = "svc.v1";
/// The service, within its package.
pub const SERVICE: &str = "VectorService";

/// What a path leads to.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// A method of the table.
    Method(Method),
    /// `grpc.health.v1.Health/Check`.
    HealthCheck,
    /// `grpc.health.v1.Health/Watch`.
    HealthWatch,
    /// `ServerReflectionInfo`, of either version: their messages are the same.
    Reflection,
}

/// A method of the table.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Its row.
    pub row: &'static Row,
    /// Its number.
    pub number: usize,
    /// How it is called.
    pub grpc: GrpcMethod,
}

/// The paths of one server.
pub struct Methods(HashMap<String, Target>);

impl Methods {
    /// Those of the package, and once more those of a package that is an alias of it.
    pub fn new(alias: Option<&str>) -> Methods {
        let mut paths = HashMap::new();
        for package in [Some(PACKAGE), alias].into_iter().flatten() {
            for (number, (row, grpc)) in grpc_methods().enumerate() {
                let path = format!("/{package}.{SERVICE}/{}", grpc.name);
                paths.insert(path, Target::Method(Method { row, number, grpc }));
            }
        }
        for (path, target) in [
            ("/grpc.health.v1.Health/Check", Target::HealthCheck),
            ("/grpc.health.v1.Health/Watch", Target::HealthWatch),
            ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Target::Reflection),
            ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Target::Reflection),
        ] {
            paths.insert(path.to_owned(), target);
        }
        Methods(paths)
    }

    /// What a path leads to.
    pub fn find(&self, path: &str) -> Option<Target> {
        self.0.get(path).copied()
    }
}

/// Checks a package that is to be an alias.
///
/// # Errors
/// What is wrong with it.
pub fn check_alias(package: &str) -> Result<(), String> {
    let is_word = |word: &str| {
        word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if package.len() > 255 || !package.split('.').all(is_word) {
        return Err(format!(
            "{package:?} is not a package: write names of letters, digits and underscores with dots between them"
        ));
    }
    if package == PACKAGE || package == "grpc" || package.starts_with("grpc.") {
        return Err(format!("{package:?} is the name of a package that is served anyway"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_rows() {
        let methods = Methods::new(Some("acme.v2"));
        for package in [PACKAGE, "acme.v2"] {
            for (number, (row, grpc)) in grpc_methods().enumerate() {
                let found = methods.find(&format!("/{package}.{SERVICE}/{}", grpc.name));
                let Some(Target::Method(method)) = found else { panic!("{}", grpc.name) };
                assert_eq!((method.number, method.row.name, method.grpc), (number, row.name, grpc));
            }
        }
        for path in
            ["", "/", "/svc.v1.VectorService/search", "/svc.v1.VectorService/Search/", "/acme.v2/Search"]
        {
            assert!(methods.find(path).is_none(), "{path}");
        }
        assert!(Methods::new(None).find("/acme.v2.VectorService/Search").is_none());
    }

    #[test]
    fn packages() {
        for good in ["acme", "acme.v1", "_a.B_2"] {
            assert_eq!(check_alias(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            ".",
            "a.",
            "a..b",
            "1a",
            "a b",
            "a/b",
            "ä",
            "svc.v1",
            "grpc",
            "grpc.health.v1",
            &"a".repeat(256),
        ] {
            assert!(check_alias(bad).is_err(), "{bad}");
        }
    }
}
