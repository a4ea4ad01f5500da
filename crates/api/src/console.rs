//! The console: pages for browsers, which are clients of this interface and of nothing else.
//!
//! The files of `console/` are served as they are: a table of them, each with its type and a tag of its content. Invariants: they
//! need no credentials and say nothing about the hub, and load and run nothing but each other. Not here: the headers that hold browsers to
//! that (`gate`), what the pages show (`console/`).

use crate::problem::Problem;
use crate::served::Served;
use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use model::Crc64;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! assets {
    ($($name:literal: $kind:ident),+ $(,)?) => {
        &[("/", HTML, include_bytes!("../console/index.html")),
            $((concat!("/assets/", $name), $kind, include_bytes!(concat!("../console/", $name)))),+]
    };
}

/// Where, of what type, and what.
const ASSETS: &[(&str, &str, &[u8])] = assets! {
    "style.css": CSS, "icon.svg": IMAGE,
    "main.js": SCRIPT, "api.js": SCRIPT, "dom.js": SCRIPT, "text.js": SCRIPT, "live.js": SCRIPT, "chart.js": SCRIPT, "job_parts.js": SCRIPT,
    "job_form.js": SCRIPT,
    "pages/now.js": SCRIPT, "pages/jobs.js": SCRIPT, "pages/job.js": SCRIPT, "pages/endpoints.js": SCRIPT, "pages/submit.js": SCRIPT,
    "pages/access.js": SCRIPT, "pages/schedules.js": SCRIPT, "pages/rates.js": SCRIPT, "pages/audit.js": SCRIPT, "pages/login.js": SCRIPT,
};

pub fn pages() -> Router<Served> {
    Router::new()
        .route("/", get(async |asked: HeaderMap| page("/", &asked)))
        .route("/assets/{*name}", get(async |uri: Uri, asked: HeaderMap| page(uri.path(), &asked)))
}

fn page(path: &str, asked: &HeaderMap) -> Response {
    match ASSETS.iter().find(|(name, ..)| *name == path) {
        Some(&(_, kind, content)) => answer(kind, content, &tag_of(content), asked),
        None => Problem::absent().into_response(),
    }
}

fn tag_of(content: &[u8]) -> String {
    format!("\"{:016x}\"", Crc64::of(content))
}

fn answer(kind: &'static str, content: &'static [u8], tag: &str, asked: &HeaderMap) -> Response {
    let known = asked.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let is_known = known.is_some_and(|known| known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag));
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, kind)], content).into_response(),
    };
    let headers = response.headers_mut();
    // A browser asks each time, and is mostly told that nothing changed.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::ETAG, HeaderValue::from_str(tag).expect("hexadecimal digits make a header"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn files(folder: &Path) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn every_file_of_the_console_is_served_and_is_small_together() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
        let mut found: Vec<String> = files(&folder)
            .iter()
            .map(|path| format!("/assets/{}", path.strip_prefix(&folder).unwrap().display()))
            .map(|path| if path == "/assets/index.html" { "/".to_owned() } else { path })
            .collect();
        let mut served: Vec<_> = ASSETS.iter().map(|(path, ..)| (*path).to_owned()).collect();
        found.sort();
        served.sort();
        assert_eq!(found, served);
        let bytes: usize = ASSETS.iter().map(|(.., content)| content.len()).sum();
        assert!(bytes < 128 << 10, "{bytes} bytes");
    }

    /// What Trusted Types forbid, what would be loaded from elsewhere, and imports of what is not there.
    #[test]
    fn the_scripts_load_what_is_here_and_make_no_markup_of_text() {
        for (path, kind, content) in ASSETS {
            let text = std::str::from_utf8(content).unwrap();
            for forbidden in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "https://"]
            {
                assert!(!text.contains(forbidden), "{path}: {forbidden}");
            }
            if *kind != SCRIPT {
                continue;
            }
            let folder = &path[..=path.rfind('/').unwrap()];
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let name = line.split('\'').nth(1).unwrap();
                let named = match name.strip_prefix("../") {
                    Some(above) => format!("/assets/{above}"),
                    None => format!("{folder}{}", name.strip_prefix("./").unwrap()),
                };
                assert!(ASSETS.iter().any(|(path, ..)| *path == named), "{path}: {named}");
            }
        }
    }

    #[test]
    fn what_a_browser_has_is_not_sent_again() {
        let (_, kind, content) = ASSETS[0];
        let tag = tag_of(content);
        let first = answer(kind, content, &tag, &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let mut asked = HeaderMap::new();
        asked.insert(header::IF_NONE_MATCH, format!("\"0\", W/{tag}").parse().unwrap());
        let second = answer(kind, content, &tag, &asked);
        assert_eq!(
            (second.status(), &second.headers()[header::ETAG]),
            (StatusCode::NOT_MODIFIED, &first.headers()[header::ETAG])
        );
    }
}
