//! For tests: a hub that knows two endpoints which do not answer.

use crate::access::Principal;
use crate::hub::{Hub, Options};
use crate::{Channels, Filter, JobView};
use daemon::endpoints::Replace;
use daemon::{Endpoint, EndpointBook};
use model::Pin;
use std::path::Path;
use std::time::{Duration, Instant};

pub fn state() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let book = EndpointBook::new(dir.path().join("endpoints"));
    for (name, key) in [("a", 1), ("b", 2)] {
        let (addresses, added) = (vec!["127.0.0.1:1".into()], "2026-01-01T00:00:00Z".into());
        let known = Endpoint { name: name.into(), addresses, pin: Pin([key; 32]), added };
        book.add(&known, Replace::Always).unwrap();
    }
    dir
}

pub fn anna() -> Principal {
    Principal::local(0)
}

pub fn start(dir: &Path, channels: Channels) -> Hub {
    Hub::start(Options { channels, ..Options::new(dir.to_owned()) }).unwrap()
}

pub fn jobs(hub: &Hub) -> Vec<JobView> {
    hub.list(&anna(), &Filter::default(), None, 100).unwrap().jobs
}

pub fn until(mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(60), "it did not come to that within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}
