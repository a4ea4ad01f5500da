//! From a URL to a server that answers: `davs://HOST:PORT/PATH`, with the path as it is, and `https://HOST/PATH` of one file, with
//! the escapes of URLs. `dav://` and `http://` are not encrypted and lead to this host alone.
//!
//! Invariant: what a URL may hold that is secret (a password, a query) is refused and not shown.

use crate::failure::{Failure, Why};
use crate::path;
use crate::shelf::DavShelf;
use crate::site::Site;
use crate::source::{Base, DavSource};
use crate::token;
use model::{FailureKind, Location, Name, TransferOptions};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use store::open::{OpenSink, OpenSource, Refused, SinkRequest};
use store::{Error, How, OpenError, Shelf};
use web::Origin;

/// Servers that were asked, by their addresses.
#[derive(Default)]
pub struct Sites {
    open: Mutex<HashMap<String, Arc<Site>>>,
}

struct Place {
    site: Arc<Site>,
    /// From the server's root, without a slash at its end.
    path: Vec<u8>,
    name: Option<Name>,
    is_directory: bool,
}

fn refused(why: Refused, text: impl Into<String>, advice: &str) -> OpenError {
    OpenError::Refused { why, text: text.into(), advice: advice.to_owned() }
}

fn of_failure(shown: &str, failure: &Failure) -> OpenError {
    let (why, advice) = match failure.why {
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
        Why::Untrusted => (Refused::Untrusted, "for a private certificate authority set SSL_CERT_FILE"),
        _ => (Refused::Request, "check the URL: davs://HOST:PORT/PATH of a WebDAV server, or https:// of one file"),
    };
    refused(why, format!("{shown}: {failure}"), advice)
}

impl Sites {
    fn place(&self, location: &Location) -> Result<Place, OpenError> {
        let (scheme, rest) = (location.scheme(), location.path());
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (authority, written) = (String::from_utf8_lossy(&rest[..end]), &rest[end..]);
        let is_plain = scheme.starts_with("http");
        if authority.contains('@') {
            let text = "a URL must not hold a user name or password";
            return Err(refused(Refused::Request, text, "tokens are taken from BEARER_TOKEN or BEARER_TOKEN_FILE"));
        }
        if is_plain && written.iter().any(|byte| b"?#".contains(byte)) {
            let text =
                format!("the {scheme}:// URL has a query, which may be a secret that others on this host could read");
            return Err(refused(
                Refused::Request,
                text,
                "name the file without `?`, or write it as %3F if it is part of the name",
            ));
        }
        let is_tls = matches!(scheme, "davs" | "https");
        let shown = format!("{scheme}://{authority}");
        let origin = Origin::parse(&format!("{}://{authority}", if is_tls { "https" } else { "http" }));
        let origin = origin.map_err(|e| of_failure(&shown, &Failure::of_web(&e)))?;
        if !is_tls && !origin.is_loopback() {
            let text = format!("{shown}: the connection is not encrypted");
            return Err(refused(Refused::Request, text, "use davs:// or https://"));
        }
        let path = if is_plain { path::decoded(&String::from_utf8_lossy(written)) } else { written.to_vec() };
        let names = path::names(&path).map_err(|why| {
            refused(Refused::Request, format!("{location} is not a path: {why}"), "name a path without `.` and `..`")
        })?;
        let is_directory = names.is_empty() || path.ends_with(b"/");
        if is_plain && is_directory {
            let text = format!("{location} names no file");
            return Err(refused(
                Refused::Request,
                text,
                "directories are listed with davs://, if the server does WebDAV",
            ));
        }
        let path = [b"/", &model::name::join(&names)[..]].concat();
        Ok(Place { site: self.site(&shown, origin, is_plain)?, path, name: names.last().cloned(), is_directory })
    }

    fn site(&self, shown: &str, origin: Origin, is_plain: bool) -> Result<Arc<Site>, OpenError> {
        let mut open = self.open.lock().unwrap();
        if let Some(site) = open.get(shown) {
            return Ok(site.clone());
        }
        let site = token::find().and_then(|token| Site::new(origin, token, is_plain));
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
                return Err(refused(Refused::Request, text, "give a command for each server"));
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

    fn sink(&self, location: &Location, _: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        let text = format!("{}:// is a source only: this build does not write to WebDAV servers", location.scheme());
        Err(refused(Refused::Request, text, "copy to a directory, an endpoint or a bucket"))
    }

    fn shelf(&self, location: &Location, _: How) -> Result<Box<dyn Shelf>, OpenError> {
        let place = self.place(location)?;
        Ok(Box::new(DavShelf::new(place.site, place.path)))
    }
}
