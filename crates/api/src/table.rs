//! Every request that there is, and what it needs of whoever makes it: the one place where that is said.
//!
//! What is not in the table is not answered, whatever the router knows. `openapi.json` has the same paths, which a test holds.

use axum::http::Method;
use hub::Scope;

/// What a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// Strangers may make it.
    Nothing,
    /// Anybody whom the hub knows.
    Somebody,
    Scope(Scope),
}
use Needs::{Nothing, Somebody};
const READ: Needs = Needs::Scope(Scope::Read);
const SUBMIT: Needs = Needs::Scope(Scope::Submit);
const STEER: Needs = Needs::Scope(Scope::Steer);
const ADMIN: Needs = Needs::Scope(Scope::Admin);

/// What can be asked, for programs.
pub const OPENAPI: &str = include_str!("../openapi.json");

const NO_BODY: usize = 0;
const SMALL: usize = 16 << 10;
const BODY: usize = 1 << 20;
const BATCH: usize = 8 << 20;

#[derive(Debug)]
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub needs: Needs,
    pub body_bytes_max: usize,
}

const fn row(method: &'static str, path: &'static str, needs: Needs, body_bytes_max: usize) -> Route {
    Route { method, path, needs, body_bytes_max }
}

pub const ROUTES: &[Route] = &[
    row("GET", "/api/v1/jobs", READ, NO_BODY),
    row("POST", "/api/v1/jobs", SUBMIT, BODY),
    row("POST", "/api/v1/jobs:batch", SUBMIT, BATCH),
    row("GET", "/api/v1/jobs/{id}", READ, NO_BODY),
    row("PATCH", "/api/v1/jobs/{id}", STEER, SMALL),
    row("DELETE", "/api/v1/jobs/{id}", STEER, NO_BODY),
    row("GET", "/api/v1/jobs/{id}/failures", READ, NO_BODY),
    row("GET", "/api/v1/jobs/{id}/samples", READ, NO_BODY),
    row("GET", "/api/v1/jobs/{id}/events", READ, NO_BODY),
    row("POST", "/api/v1/rehearsals", SUBMIT, BODY),
    row("GET", "/api/v1/rehearsals/{id}", READ, NO_BODY),
    row("POST", "/api/v1/rehearsals/{id}/submit", SUBMIT, SMALL),
    row("GET", "/api/v1/samples", ADMIN, NO_BODY),
    row("POST", "/api/v1/jobs/{id}/{verb}", STEER, SMALL),
    row("GET", "/api/v1/endpoints", READ, NO_BODY),
    row("POST", "/api/v1/endpoints", ADMIN, SMALL),
    row("GET", "/api/v1/endpoints/{name}/terms", ADMIN, NO_BODY),
    row("PATCH", "/api/v1/endpoints/{name}/terms", ADMIN, SMALL),
    row("GET", "/api/v1/events", READ, NO_BODY),
    row("GET", "/api/v1/summary", READ, NO_BODY),
    row("GET", "/api/v1/tokens", ADMIN, NO_BODY),
    row("POST", "/api/v1/tokens", ADMIN, SMALL),
    row("DELETE", "/api/v1/tokens/{name}", ADMIN, NO_BODY),
    row("GET", "/api/v1/rules", STEER, NO_BODY),
    row("POST", "/api/v1/rules", STEER, SMALL),
    row("DELETE", "/api/v1/rules/{id}", STEER, NO_BODY),
    row("GET", "/api/v1/schedules", READ, NO_BODY),
    row("POST", "/api/v1/schedules", SUBMIT, BODY),
    row("GET", "/api/v1/schedules/{name}", READ, NO_BODY),
    row("DELETE", "/api/v1/schedules/{name}", STEER, NO_BODY),
    row("POST", "/api/v1/schedules/{name}/{verb}", STEER, SMALL),
    row("GET", "/api/v1/audit", ADMIN, NO_BODY),
    row("GET", "/api/v1/audit/chain", ADMIN, NO_BODY),
    row("POST", "/api/v1/session/code", Somebody, SMALL),
    row("POST", "/api/v1/session", Nothing, SMALL),
    row("GET", "/api/v1/session", Somebody, NO_BODY),
    row("DELETE", "/api/v1/session", Somebody, NO_BODY),
    row("GET", "/api/v1/openapi.json", Nothing, NO_BODY),
    row("GET", "/healthz", Nothing, NO_BODY),
    row("GET", "/", Nothing, NO_BODY),
    row("GET", "/assets/{*name}", Nothing, NO_BODY),
];

/// The row of a request, by the path that the router matched.
pub fn find(method: &Method, path: &str) -> Option<&'static Route> {
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    ROUTES.iter().find(|route| route.method == method && route.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// The console's pages are no part of the interface.
    #[test]
    fn the_document_has_the_same_requests_as_the_table() {
        let document: Value = serde_json::from_str(OPENAPI).unwrap();
        let documented: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| {
                let methods = item.as_object().unwrap().keys().filter(|key| *key != "parameters");
                methods.map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
            })
            .collect();
        let is_of_the_interface = |route: &&Route| route.path.starts_with("/api/") || route.path == "/healthz";
        let known = ROUTES.iter().filter(is_of_the_interface);
        let known: BTreeSet<_> = known.map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
        assert_eq!(documented, known);
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
                let route = find(&method.to_uppercase().parse().unwrap(), path).unwrap();
                let is_open = operation["security"].as_array().is_some_and(|all| all.is_empty());
                assert_eq!(is_open, route.needs == Nothing, "{method} {path}");
                let scope = match route.needs {
                    Nothing => None,
                    Somebody => Some("any"),
                    Needs::Scope(scope) => Some(scope.word()),
                };
                assert_eq!(operation["x-scope"].as_str(), scope, "{method} {path}");
                let has_body = operation.get("requestBody").is_some();
                assert!(!has_body || route.body_bytes_max > 0, "{method} {path}");
            }
        }
    }
}
