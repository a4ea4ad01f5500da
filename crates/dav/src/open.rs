//! From a URL to a server that answers: `davs://HOST:PORT/PATH`, with the path as it is, and `https://HOST/PATH` of one file, with
//! the escapes of URLs. `dav://` and `http://` are not encrypted and lead to this host alone.
//!
//! Invariant: what a URL may hold that is secret (a password, a query) is refused and not shown.

use crate::failure::{Failure, Why};
use crate::path;
use crate::shelf::DavShelf;
use crate::sink::DavSink;
use crate::site::{Site, SiteConfig};
use crate::source::{Base, DavSource};
use crate::token;
use model::{FailureKind, Location, Name, TransferOptions};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use store::open::{OpenSink, OpenSource, Refused, Rights, Shape, SinkRequest};
use store::{Error, How, OpenError, Shelf};
use web::{Origin, Stop};

/// Servers that were asked, by their addresses.
#[derive(Default)]
pub struct Sites {
    open: Mutex<HashMap<String, Arc<Site>>>,
    tables: Vec<SiteConfig>,
    stop: Stop,
}

struct Place {
    site: Arc<Site>,
    /// From the server's root, without a slash at its end.
    path: Vec<u8>,
    name: Option<Name>,
    is_directory: bool,
}

fn of_failure(shown: &str, failure: &Failure) -> OpenError {
    // No token that was found is sent there (`token`).
    let is_clear = shown.split_once("://").is_some_and(|(scheme, rest)| {
        let origin = origin(scheme, rest.split('/').next().unwrap_or(rest));
        origin.is_ok_and(|origin| !origin.is_tls && !origin.is_loopback())
    });
    let (why, advice) = match failure.why {
        Why::Credentials if is_clear => (
            Refused::Keys,
            "name a file with a valid token as token_file in the server's table: without encryption another host is sent no other token \
             (docs/webdav.md)",
        ),
        Why::Credentials => (
            Refused::Keys,
            "get a new token, and put it into BEARER_TOKEN or the file that BEARER_TOKEN_FILE names (docs/webdav.md)",
        ),
        Why::Forbidden => {
            (Refused::Keys, "the token, or its absence, does not allow this: ask the owner of the server")
        }
        Why::Missing => {
            let error = failure.on("open source", b"");
            return OpenError::Source { path: shown.as_bytes().to_vec(), error };
        }
        Why::Unreachable | Why::Busy | Why::Unknown => {
            (Refused::Unreachable, "check the address, the network and any firewall on the path")
        }
        Why::Untrusted if failure.text.starts_with("the server redirects") => {
            (Refused::Untrusted, "name the host that it redirects to, if you trust that one with what you send")
        }
        Why::Untrusted => (
            Refused::Untrusted,
            "for a private certificate authority set SSL_CERT_FILE, or `ca_file` in the server's table",
        ),
        _ => (Refused::Request, "check the URL: davs://HOST:PORT/PATH of a WebDAV server, or https:// of one file"),
    };
    OpenError::refused(why, format!("{shown}: {failure}"), advice)
}

/// Where requests to `davs://HOST:PORT` and the like go.
fn origin(scheme: &str, authority: &str) -> Result<Origin, Failure> {
    let is_tls = matches!(scheme, "davs" | "https");
    Origin::parse(&format!("{}://{authority}", if is_tls { "https" } else { "http" })).map_err(|e| Failure::of_web(&e))
}

impl Sites {
    /// `tables` describe servers of which more has to be known than their addresses. Waiting ends when this process is to stop.
    pub fn new(tables: Vec<SiteConfig>, stop: Stop) -> Sites {
        Sites { open: Mutex::default(), tables, stop }
    }

    fn config(&self, origin: &Origin) -> Result<SiteConfig, OpenError> {
        for table in &self.tables {
            let endpoint = table.endpoint.split_once("://");
            let meant = endpoint.and_then(|(scheme, authority)| self::origin(scheme, authority).ok());
            let Some(meant) = meant else {
                let text = format!("{:?} is no address of a WebDAV server", table.endpoint);
                let advice = "write endpoint = \"davs://HOST:PORT\" in its table";
                return Err(OpenError::refused(Refused::Request, text, advice));
            };
            if meant == *origin {
                return Ok(table.clone());
            }
        }
        Ok(SiteConfig::default())
    }

    fn place(&self, location: &Location) -> Result<Place, OpenError> {
        let (scheme, rest) = (location.scheme(), location.path());
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (authority, written) = (String::from_utf8_lossy(&rest[..end]), &rest[end..]);
        let is_plain = scheme.starts_with("http");
        if authority.contains('@') {
            let text = "a URL must not hold a user name or password";
            let advice = "tokens are taken from BEARER_TOKEN or BEARER_TOKEN_FILE";
            return Err(OpenError::refused(Refused::Request, text, advice));
        }
        if is_plain && written.iter().any(|byte| b"?#".contains(byte)) {
            let text =
                format!("the {scheme}:// URL has a query, which may be a secret that others on this host could read");
            return Err(OpenError::refused(
                Refused::Request,
                text,
                "name the file without `?`, or write it as %3F if it is part of the name",
            ));
        }
        let shown = format!("{scheme}://{authority}");
        let origin = origin(scheme, &authority).map_err(|failure| of_failure(&shown, &failure))?;
        let config = self.config(&origin)?;
        if !origin.is_tls && !origin.is_loopback() && !config.allow_clear {
            let text = format!("{shown}: the connection is not encrypted");
            return Err(OpenError::refused(Refused::Request, text, "use davs:// or https://"));
        }
        let path = if is_plain { path::decoded(&String::from_utf8_lossy(written)) } else { written.to_vec() };
        let names = path::names(&path).map_err(|why| {
            let text = format!("{location} is not a path: {why}");
            OpenError::refused(Refused::Request, text, "name a path without `.` and `..`")
        })?;
        let is_directory = names.is_empty() || path.ends_with(b"/");
        if is_plain && is_directory {
            let text = format!("{location} names no file");
            return Err(OpenError::refused(
                Refused::Request,
                text,
                "directories are listed with davs://, if the server does WebDAV",
            ));
        }
        let path = [b"/", &model::name::join(&names)[..]].concat();
        Ok(Place {
            site: self.site(&shown, origin, &config, is_plain)?,
            path,
            name: names.last().cloned(),
            is_directory,
        })
    }

    fn site(&self, shown: &str, origin: Origin, config: &SiteConfig, is_plain: bool) -> Result<Arc<Site>, OpenError> {
        let mut open = self.open.lock().unwrap();
        if let Some(site) = open.get(shown) {
            return Ok(site.clone());
        }
        let token = token::find(config.token_file.as_deref(), &origin);
        let site = token.and_then(|token| Site::new(origin, token, is_plain, config, self.stop.clone()));
        let site = Arc::new(site.map_err(|failure| of_failure(shown, &failure))?);
        open.insert(shown.to_owned(), site.clone());
        Ok(site)
    }
}

impl store::open::Opener for Sites {
    fn source(&self, locations: &[Location], options: &TransferOptions) -> Result<OpenSource, OpenError> {
        let (mut bases, mut site, mut is_single) = (Vec::new(), None::<Arc<Site>>, true);
        for location in locations {
            let place = self.place(location)?;
            if site.as_ref().is_some_and(|site| !Arc::ptr_eq(site, &place.site)) {
                let text = "the sources are on several servers";
                return Err(OpenError::refused(Refused::Request, text, "give a command for each server"));
            }
            let stat = place.site.stat(&place.path).map_err(|failure| of_failure(&location.to_string(), &failure))?;
            is_single &= !stat.is_directory;
            if place.is_directory && !stat.is_directory {
                let error = Error::of_kind(FailureKind::InTheWay, "open source", b"", "it is a file, not a directory");
                return Err(OpenError::Source { path: location.to_string().into_bytes(), error });
            }
            bases.push(match place.name.filter(|_| !place.is_directory) {
                Some(name) => Base::Named(name, place.path),
                None => Base::Contents(place.path),
            });
            site = Some(place.site);
        }
        let site = site.ok_or_else(|| OpenError::NoStore("davs".to_owned()))?;
        let is_single = is_single && bases.len() == 1;
        let source = DavSource::new(site, bases, options.selection_at_source());
        Ok(OpenSource { source: Arc::new(source), is_single })
    }

    fn sink(&self, location: &Location, wish: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        let place = self.place(location)?;
        let site = place.site.clone();
        if site.is_plain {
            let text = format!("{}:// is for reading single files", location.scheme());
            return Err(OpenError::refused(Refused::Unable, text, "write to a WebDAV server as davs://HOST:PORT/PATH"));
        }
        let shown = location.to_string();
        let failed = |failure: Failure| of_failure(&shown, &failure);
        let there = site.find(&place.path).map_err(failed)?;
        let is_file = there.as_ref().is_some_and(|there| !there.is_directory);
        let is_directory = place.is_directory || (there.is_some() && !is_file);
        if wish.is_nameless && is_directory {
            return Err(OpenError::Nameless);
        }
        let (root, rename_to) = match (wish.shape, place.name) {
            (Shape::Single | Shape::SingleOrTree, Some(name)) if !is_directory => {
                let above = place.path.len() - name.as_bytes().len();
                (place.path[..above.max(2) - 1].to_vec(), Some(name))
            }
            _ if is_file => return Err(OpenError::NoDirectory(shown.into_bytes())),
            _ => (place.path, None),
        };
        let is_rehearsal = wish.rights == Rights::Rehearse;
        let is_fresh = !is_rehearsal && site.make_directories(&root).map_err(failed)?;
        Ok(OpenSink::new(Arc::new(DavSink::new(site, (root, is_fresh), is_rehearsal)), rename_to))
    }

    fn shelf(&self, location: &Location, how: How) -> Result<Box<dyn Shelf>, OpenError> {
        let place = self.place(location)?;
        if place.site.is_plain && how != How::Look {
            let text = format!("{}:// is for reading single files", location.scheme());
            return Err(OpenError::refused(Refused::Unable, text, "name a WebDAV server as davs://HOST:PORT/PATH"));
        }
        if let (How::Make { with_parents: true }, Some(name)) = (how, &place.name) {
            let above = place.path.len() - name.as_bytes().len();
            let made = place.site.make_directories(&place.path[..above.max(2) - 1]);
            made.map_err(|failure| of_failure(&location.to_string(), &failure))?;
        }
        Ok(Box::new(DavShelf::new(place.site, place.path, false)))
    }

    fn shelf_below(&self, base: &Location, path: &[u8], how: How) -> Result<Box<dyn Shelf>, OpenError> {
        let place = self.place(base)?;
        let failed = |error: Error| OpenError::Source { path: path.to_vec(), error };
        let names = model::name::relative_path(path)
            .map_err(|e| failed(Error::of_kind(FailureKind::NameRefused, "open", path, &e.to_string())))?;
        let below = names.iter().fold(place.path, |above, name| path::below(&above, name.as_bytes()));
        if let (How::Make { with_parents: true }, Some(name)) = (how, names.last()) {
            let above = &below[..below.len() - name.as_bytes().len() - 1];
            place.site.make_directories(above).map_err(|failure| failed(failure.on("make directory", path)))?;
        }
        Ok(Box::new(DavShelf::new(place.site, below, names.is_empty())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_is_asked_for_where_no_other_token_is_sent() {
        for (shown, wants_file) in [
            ("dav://far:80/d", true),
            ("http://localhost.far/f", true),
            ("dav://127.0.0.1:8080/d", false),
            ("http://[::1]/f", false),
            ("dav://localhost", false),
            ("davs://far/d", false),
        ] {
            let refused = of_failure(shown, &Failure::of_status(401, false));
            let OpenError::Refused { why, advice, .. } = refused else { panic!("{shown} is not refused") };
            assert_eq!((why, advice.contains("token_file")), (Refused::Keys, wants_file), "{shown}");
        }
    }
}
