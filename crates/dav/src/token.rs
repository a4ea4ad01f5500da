//! The bearer token of this process, in the order that the WLCG asks for: `BEARER_TOKEN`, the file that `BEARER_TOKEN_FILE` names,
//! `$XDG_RUNTIME_DIR/bt_uUID`, `/tmp/bt_uUID`.
//!
//! Invariants: a token is never shown; one that was found, and not named for its server, goes to no other host in clear text.

use crate::failure::{Failure, Result, Why};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use web::Origin;

const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// The token of a server that the user has a file for, or of the process.
pub fn find(file: Option<&Path>, origin: &Origin) -> Result<Option<String>> {
    find_by(file, origin, &|name| std::env::var_os(name))
}

fn find_by(
    file: Option<&Path>,
    origin: &Origin,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<String>> {
    if let Some(file) = file {
        return read(file).map(Some);
    }
    if !origin.is_tls && !origin.is_loopback() {
        return Ok(None);
    }
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(token) = set("BEARER_TOKEN") {
        return checked(&token.to_string_lossy(), "BEARER_TOKEN").map(Some);
    }
    if let Some(file) = set("BEARER_TOKEN_FILE") {
        return read(Path::new(&file)).map(Some);
    }
    let Ok(user) = std::fs::metadata("/proc/self").map(|of| of.uid()) else { return Ok(None) };
    let runtime = set("XDG_RUNTIME_DIR").map(PathBuf::from);
    for directory in runtime.into_iter().chain([PathBuf::from("/tmp")]) {
        let file = directory.join(format!("bt_u{user}"));
        // What another user put there is none of ours.
        if std::fs::symlink_metadata(&file).is_ok_and(|of| of.is_file() && of.uid() == user) {
            return read(&file).map(Some);
        }
    }
    Ok(None)
}

fn read(file: &Path) -> Result<String> {
    let shown = file.display().to_string();
    let failed = |why: String| Failure::new(Why::Settings, format!("the token file {shown} cannot be used: {why}"));
    let length = std::fs::metadata(file).map_err(|e| failed(e.to_string()))?.len();
    if length > TOKEN_BYTES_MAX {
        return Err(failed("it is longer than 64 KiB".to_owned()));
    }
    checked(&std::fs::read_to_string(file).map_err(|e| failed(e.to_string()))?, &shown)
}

fn checked(text: &str, whence: &str) -> Result<String> {
    let token = text.trim();
    match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token.to_owned()),
        false => Err(Failure::new(Why::Settings, format!("{whence} holds no bearer token"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_token_is_refused_without_being_shown() {
        assert_eq!(checked(" abc.def\n", "x").unwrap(), "abc.def");
        for text in ["", "\n", "hunter2 hunter2", "hunter2\r\nhost: evil"] {
            let refused = checked(text, "BEARER_TOKEN").unwrap_err();
            assert!(refused.why == Why::Settings && !refused.text.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn a_token_that_was_found_goes_to_no_other_host_in_clear_text() {
        let set = |name: &str| (name == "BEARER_TOKEN").then(|| OsString::from("found"));
        let token = |file: Option<&Path>, url: &str| find_by(file, &Origin::parse(url).unwrap(), &set).unwrap();
        for url in ["https://far.example", "http://localhost:1094", "http://127.0.0.1"] {
            assert_eq!(token(None, url).as_deref(), Some("found"), "{url}");
        }
        assert_eq!(token(None, "http://far.example"), None);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "own").unwrap();
        assert_eq!(token(Some(file.path()), "http://far.example").as_deref(), Some("own"));
    }
}
