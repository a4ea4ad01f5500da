//! From `sftp://[USER@]HOST[:PORT]/ABSOLUTE` to a server that answers.
//!
//! Invariant: a server is asked once, before anything else, whether it can be used.

use super::server::{Dial, Server};
use crate::tree::{Host, Place, Places, lost, split};
use model::{Location, TransferOptions};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use store::open::{OpenSink, OpenSource, Opener, SinkRequest};
use store::{How, OpenError, Seen, Shelf};

pub const SCHEME: &str = "sftp";
pub const FORM: &str = "sftp://[USER@]HOST[:PORT]/ABSOLUTE";

/// The servers that a program speaks to.
pub struct Servers {
    dial: Arc<dyn Dial>,
    open: Mutex<HashMap<Host, Arc<Server>>>,
}

impl Servers {
    pub fn new(dial: Arc<dyn Dial>) -> Servers {
        Servers { dial, open: Mutex::default() }
    }

    fn place(&self, location: &Location) -> Result<Place<Server>, OpenError> {
        let (authority, path, is_directory) = split(location, FORM)?;
        let server = self.server(Host::parse(authority, FORM)?)?;
        server.session().map_err(|fault| lost(&server.name, &fault))?;
        Ok(Place { server, path, is_directory })
    }

    fn server(&self, host: Host) -> Result<Arc<Server>, OpenError> {
        let mut open = self.open.lock().unwrap();
        if let Some(server) = open.get(&host) {
            return Ok(server.clone());
        }
        let server = Server::connect(&self.dial, &host)?;
        Ok(open.entry(host).or_insert_with(|| Arc::new(server)).clone())
    }
}

impl Opener for Servers {
    fn source(&self, locations: &[Location], options: &TransferOptions) -> Result<OpenSource, OpenError> {
        Places(&|location| self.place(location)).source(locations, options)
    }

    fn sink(&self, location: &Location, request: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        Places(&|location| self.place(location)).sink(location, request)
    }

    fn shelf(&self, location: &Location, how: How) -> Result<Box<dyn Shelf>, OpenError> {
        Places(&|location| self.place(location)).shelf(location, how)
    }

    fn diagnose(&self, location: &Location) -> Result<Vec<Seen>, OpenError> {
        Places(&|location| self.place(location)).diagnose(location)
    }
}
