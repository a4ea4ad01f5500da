//! From a URL to a bucket that answers: `s3://BUCKET/KEY`, and `s3+NAME://BUCKET/KEY` for a store that a table describes.
//!
//! Invariant: a bucket is asked once, before anything else, whether it can be used: wrong keys, a bucket that is not there and a store
//! that does not answer are told before a transfer begins.

use crate::bucket::Bucket;
use crate::config::{StoreConfig, is_bucket};
use crate::failure::{Failure, Why};
use crate::key;
use crate::known::Known;
use crate::shelf::ObjectShelf;
use crate::sink::ObjectSink;
use crate::source::{Base, ObjectSource};
use crate::upload_log::UploadLogs;
use crate::width::Permits;
use model::{FailureKind, Location, Name, TransferOptions};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::open::{OpenSink, OpenSource, Refused, Rights, Shape, SinkRequest};
use store::{Error, How, OpenError, Shelf};
use web::Stop;

pub const SCHEME: &str = "s3";

/// The stores that a program knows, by their names.
#[derive(Default)]
pub struct Buckets {
    stores: BTreeMap<String, StoreConfig>,
    logs: Option<UploadLogs>,
    known: Option<PathBuf>,
    open: Mutex<HashMap<String, Opened>>,
    permits: Permits,
    stop: Stop,
    patience: Option<Duration>,
}

/// A bucket, once it has answered. Whoever wants it meanwhile waits, and nobody else does.
type Opened = Arc<Mutex<Option<Arc<Bucket>>>>;

/// A place in a bucket.
pub struct Place {
    pub bucket: Arc<Bucket>,
    /// Without a slash at its end; empty for all of the bucket.
    pub key: String,
    /// Only a directory is meant.
    pub is_directory: bool,
}

impl Place {
    fn prefix(&self) -> String {
        if self.key.is_empty() { String::new() } else { format!("{}/", self.key) }
    }

    /// What keys below it begin with; without a slash at its end it is any text that they begin with.
    pub fn below(&self) -> String {
        if self.is_directory { self.prefix() } else { self.key.clone() }
    }

    /// The key's last name, and what stands before it.
    fn parts(&self) -> Option<(&str, Name)> {
        let at = self.key.rfind('/').map_or(0, |at| at + 1);
        key::to_name(&self.key[at..]).ok().map(|name| (&self.key[..at], name))
    }
}

impl Buckets {
    pub fn new(stores: BTreeMap<String, StoreConfig>) -> Buckets {
        Buckets { stores, ..Buckets::default() }
    }

    /// What all buckets may hold of what is sent and fetched, from now on.
    pub fn grant(&self, memory_bytes: u64) {
        self.permits.resize(memory_bytes);
    }

    /// Waiting for a store ends when this process is to stop.
    pub fn stopped_by(self, stop: Stop) -> Buckets {
        Buckets { stop, ..self }
    }

    /// A store that says nothing is asked again after so long. For tests: what is usual does for every store.
    pub fn within(self, patience: Duration) -> Buckets {
        Buckets { patience: Some(patience), ..self }
    }

    /// Keeps in a directory what is known of uploads that are interrupted, so that the next attempt goes on with them.
    pub fn keep_uploads_in(self, directory: PathBuf) -> Buckets {
        Buckets { logs: Some(UploadLogs::new(directory)), ..self }
    }

    /// Keeps in a directory what is learnt of objects, so that the next transfer need not ask for it again.
    pub fn keep_known_in(self, directory: PathBuf) -> Buckets {
        Buckets { known: Some(directory), ..self }
    }

    /// The bucket of a location, once it has answered, and the place in it.
    pub fn place(&self, location: &Location) -> Result<Place, OpenError> {
        self.place_for(location, false)
    }

    /// The same; what stands there `is_listed` next.
    fn place_for(&self, location: &Location, is_listed: bool) -> Result<Place, OpenError> {
        let (scheme, rest) = (location.scheme(), location.path());
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let name = std::str::from_utf8(&rest[..end]).ok().filter(|name| is_bucket(name));
        let name = name.ok_or_else(|| {
            let text = format!("{location} names no bucket");
            let advice = "an object's location is s3://BUCKET/KEY, or s3+NAME://BUCKET/KEY";
            OpenError::refused(Refused::Request, text, advice)
        })?;
        let path = rest.get(end + 1..).unwrap_or_default();
        let is_directory = path.is_empty() || path.ends_with(b"/");
        let path = path.strip_suffix(b"/").unwrap_or(path);
        if !path.is_empty()
            && let Err(why) = key::to_names(&key::of_path(path))
        {
            let text = format!("{location} is not a path: {why}");
            return Err(OpenError::refused(Refused::Request, text, "name a key whose parts are file names"));
        }
        let below = (is_listed && is_directory).then(|| match path.is_empty() {
            true => String::new(),
            false => format!("{}/", key::of_path(path)),
        });
        let bucket = self.bucket(scheme, name, below.as_deref())?;
        Ok(Place { bucket, key: key::of_path(path), is_directory })
    }

    /// What a path below a location leads to; the location itself stays. A file on the way is in the way.
    pub fn shelf_below(&self, base: &Location, path: &[u8], how: How) -> store::Result<Box<dyn Shelf>> {
        let place = self.place(base).map_err(|e| Error::of_kind(FailureKind::Other, "open", b"", &e.to_string()))?;
        let refused = |why: &str| Error::of_kind(FailureKind::NameRefused, "open", path, why);
        let names = model::name::relative_path(path).map_err(|e| refused(&e.to_string()))?;
        let mut key = place.key.clone();
        for (at, name) in names.iter().enumerate() {
            if at > 0 && place.bucket.head(&key).map_err(|failure| failure.on("open", ""))?.is_some() {
                return Err(Error::of_kind(FailureKind::InTheWay, "open", path, "a file stands on the way"));
            }
            if at > 0
                && how != (How::Make { with_parents: true })
                && !place.bucket.has_below(&format!("{key}/")).map_err(|failure| failure.on("open", ""))?
            {
                return Err(Error::of_kind(FailureKind::NotFound, "open", path, "it is not there"));
            }
            let slash = if key.is_empty() { "" } else { "/" };
            key = format!("{key}{slash}{}", key::of_name(name.as_bytes()));
        }
        let is_directory = names.is_empty() || path.ends_with(b"/");
        Ok(Box::new(ObjectShelf::new(place.bucket, key, is_directory, names.is_empty())))
    }

    fn bucket(&self, scheme: &str, name: &str, below: Option<&str>) -> Result<Arc<Bucket>, OpenError> {
        let shown = format!("{scheme}://{name}");
        let opened = self.open.lock().unwrap().entry(shown.clone()).or_default().clone();
        let mut opened = opened.lock().unwrap();
        if let Some(bucket) = &*opened {
            // What was listed when it was opened is for whoever opened it.
            *bucket.beginning.lock().unwrap() = None;
            return Ok(bucket.clone());
        }
        let store = scheme.split_once('+').map_or("", |(_, store)| store);
        let config = match (self.stores.get(store), store) {
            (Some(config), _) => config.clone(),
            (None, "") => StoreConfig::of_environment(&|name| std::env::var(name).ok()),
            (None, store) => {
                let text = format!("no store {store:?} is configured");
                return Err(OpenError::refused(
                    Refused::Request,
                    text,
                    &format!("describe it in config.toml below [stores.{store}]"),
                ));
            }
        };
        let bucket = Bucket::new(name, shown.clone(), &config, self.stop.clone());
        let mut bucket = bucket.map_err(|failure| of_failure(&shown, &failure))?;
        bucket.known = self.known.as_ref().map(|directory| Known::new(directory, &bucket.address(), name));
        bucket.permits = self.permits.clone();
        bucket.patience = self.patience;
        bucket.check(below).map_err(|failure| of_failure(&shown, &failure))?;
        Ok(opened.insert(Arc::new(bucket)).clone())
    }
}

/// Why a bucket cannot be used, and what to do about it.
fn of_failure(shown: &str, failure: &Failure) -> OpenError {
    let (why, advice) = match failure.why {
        Why::Keys => (
            Refused::Keys,
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile of the AWS files (docs/object-stores.md)",
        ),
        Why::Forbidden => (Refused::Keys, "the owner of the bucket can allow these keys to list, read and write it"),
        Why::NoBucket | Why::NoKey => (Refused::Missing, "check the bucket's name, and create the bucket first"),
        Why::Unreachable | Why::Busy | Why::Unknown => {
            (Refused::Unreachable, "check the store's endpoint, the network and any firewall on the path")
        }
        Why::Untrusted => (Refused::Untrusted, "for a private certificate authority set `ca_file` or SSL_CERT_FILE"),
        Why::Clock => (Refused::Keys, "set this host's clock"),
        Why::Settings if failure.text.ends_with("is not encrypted") => {
            (Refused::Request, "use https://, or set `allow_clear = true` in the store's table")
        }
        _ => (Refused::Request, "check the store's table in config.toml (docs/object-stores.md)"),
    };
    OpenError::refused(why, format!("{shown}: {failure}"), advice)
}

fn missing(location: &Location) -> OpenError {
    let error = Error::of_kind(FailureKind::NotFound, "open source", location.to_string(), "no such object");
    OpenError::Source { path: location.to_string().into_bytes(), error }
}

impl store::open::Opener for Buckets {
    fn diagnose(&self, location: &Location) -> Result<Vec<store::Seen>, OpenError> {
        let place = self.place(location)?;
        let below = if place.key.is_empty() { String::new() } else { format!("{}/", place.key) };
        Ok(place.bucket.diagnose(&below))
    }

    fn source(&self, locations: &[Location], options: &TransferOptions) -> Result<OpenSource, OpenError> {
        let mut bases = Vec::new();
        let mut bucket: Option<Arc<Bucket>> = None;
        for location in locations {
            let place = self.place_for(location, true)?;
            if bucket.as_ref().is_some_and(|bucket| !Arc::ptr_eq(bucket, &place.bucket)) {
                let text = "the sources are in several buckets";
                return Err(OpenError::refused(Refused::Unable, text, "give a command for each bucket"));
            }
            let failed = |failure: Failure| of_failure(&location.to_string(), &failure);
            let object = match place.is_directory {
                true => None,
                false => place.bucket.head(&place.key).map_err(failed)?,
            };
            let has_below =
                object.is_some() || place.key.is_empty() || place.bucket.has_below(&place.prefix()).map_err(failed)?;
            bases.push(match (object, place.parts()) {
                _ if !has_below => return Err(missing(location)),
                (Some(_), Some((_, name))) => Base::Object(name, place.key.clone()),
                (None, Some((_, name))) if !place.is_directory => Base::Directory(name, place.prefix()),
                _ => Base::Contents(place.prefix()),
            });
            bucket = Some(place.bucket);
        }
        let is_single = matches!(&bases[..], [Base::Object(..)]);
        let bucket = bucket.ok_or_else(|| OpenError::NoStore(SCHEME.to_owned()))?;
        let source = ObjectSource::new(bucket, bases, options.selection_at_source());
        Ok(OpenSource { source: Arc::new(source), is_single })
    }

    fn sink(&self, location: &Location, request: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        let place = self.place_for(location, true)?;
        let failed = |failure: Failure| of_failure(&location.to_string(), &failure);
        let is_object = !place.is_directory && place.bucket.head(&place.key).map_err(failed)?.is_some();
        let is_directory =
            place.is_directory || (!is_object && place.bucket.has_below(&place.prefix()).map_err(failed)?);
        if request.is_nameless && is_directory {
            return Err(OpenError::Nameless);
        }
        let (prefix, rename_to) = match (request.shape, place.parts()) {
            (Shape::Single | Shape::SingleOrTree, Some((above, name))) if !is_directory => {
                (above.to_owned(), Some(name))
            }
            (Shape::Tree, _) if is_object => return Err(OpenError::NoDirectory(location.to_string().into_bytes())),
            _ => (place.prefix(), None),
        };
        let is_rehearsal = request.rights == Rights::Rehearse;
        let sink = ObjectSink::new(place.bucket, prefix, request.options, is_rehearsal, self.logs.clone());
        Ok(OpenSink::new(Arc::new(sink), rename_to))
    }

    fn shelf(&self, location: &Location, _: How) -> Result<Box<dyn Shelf>, OpenError> {
        let Place { bucket, key, is_directory } = self.place(location)?;
        Ok(Box::new(ObjectShelf::new(bucket, key, is_directory, false)))
    }

    fn shelf_below(&self, base: &Location, path: &[u8], how: How) -> Result<Box<dyn Shelf>, OpenError> {
        self.place(base)?;
        Buckets::shelf_below(self, base, path, how).map_err(|error| OpenError::Source { path: path.to_vec(), error })
    }
}
