//! Notes after a copy that did what was asked, where something else was probably meant: a slash or a colon is missing.

use super::shown;
use crate::transfer::Request;
use daemon::{EndpointBook, Paths};
use model::Location;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use transfer::Ended;

/// Nothing, for nearly every copy.
pub fn notes(request: &Request, ended: &Ended) -> Vec<String> {
    let is_known =
        |name: &str| Paths::from_env().is_ok_and(|paths| EndpointBook::new(paths.endpoints()).get(name).is_ok());
    let doubled = doubled(&request.spec.sources, &request.spec.destination).filter(|_| ended.directories > 0);
    let nameless = without_colon(&request.spec.destination, is_known).filter(|_| ended.files_ok > 0);
    doubled.into_iter().chain(nameless).collect()
}

/// `cp data lab:backup/data` makes `lab:backup/data/data`.
fn doubled(sources: &[Location], destination: &Location) -> Option<String> {
    let [source] = sources else { return None };
    let (from, to) = (source.path(), without_slashes(destination.path()));
    let name = last_name(from)?;
    if from.ends_with(b"/") || last_name(to) != Some(name) || matches!(name, b"." | b"..") {
        return None;
    }
    let destination = destination.to_string();
    let destination = destination.trim_end_matches('/');
    let name = shown(OsStr::from_bytes(name));
    Some(format!(
        "note: {source} without a slash means the directory itself, which goes to {destination}/{name}; {source}/ means its \
         contents, which would go to {destination}"
    ))
}

/// `cp f lab` where `lab` is an endpoint, or `cp f user@host`.
fn without_colon(destination: &Location, is_known: impl Fn(&str) -> bool) -> Option<String> {
    let Location::Local(path) = destination else { return None };
    let name = std::str::from_utf8(path).ok().filter(|name| !name.contains('/'))?;
    let what = match name.split_once('@') {
        Some((user, host)) if !user.is_empty() && !host.is_empty() => "the home directory on that host is",
        None if is_known(name) => "the endpoint of that name is",
        _ => return None,
    };
    let name = shown(name);
    Some(format!("note: {name} is a name in the current directory; {what} {name}: with a colon"))
}

fn last_name(path: &[u8]) -> Option<&[u8]> {
    path.rsplit(|b| *b == b'/').next().filter(|name| !name.is_empty())
}

fn without_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(text: &str) -> Location {
        Location::parse(text.as_ref()).unwrap()
    }

    #[test]
    fn a_directory_that_went_into_one_of_its_own_name_is_told_and_nothing_else() {
        let doubled = |from: &str, to: &str| doubled(&[location(from)], &location(to));
        assert_eq!(
            doubled("x/data", "lab:backup/data/").unwrap(),
            "note: x/data without a slash means the directory itself, which goes to lab:backup/data/data; x/data/ is what is \
             in it, and would go to lab:backup/data"
        );
        assert!(doubled("lab:data", "data").is_some());
        for (from, to) in [("data/", "lab:data"), ("data", "lab:"), ("data", "lab:mydata"), (".", "."), ("..", "x/..")]
        {
            assert_eq!(doubled(from, to), None, "{from} {to}");
        }
    }

    #[test]
    fn a_name_without_its_colon_is_told() {
        let told = |to: &str| without_colon(&location(to), |name| name == "lab");
        assert!(told("lab").unwrap().ends_with("; the endpoint of that name is lab: with a colon"));
        assert!(told("me@host").unwrap().contains("me@host: with a colon"));
        for to in ["lab:", "lab/", "./lab", "other", "@", "a@", "me@host:x"] {
            assert_eq!(told(to), None, "{to}");
        }
    }
}
