//! An endpoint and its clients: who they are, how they know each other, what may be reached, what is recorded.
//!
//! The serving side, in reading order:
//! - `serve`: listens and lends threads
//! - `gate`: bounds what strangers may hold
//! - `clients`: who is enrolled; `enrolment` is how that is written down, `census` how many they are
//! - `issue`: makes and revokes tickets; `limited` is what they allow
//! - `removed`, `revoked`: who is kept out
//! - `host`: opens paths below the root
//! - `orders`: jobs that it carries out in clients' names, by a `warrant`
//! - `governor`: shares rates out among jobs
//! - `metrics`, `events`: tell of them
//! - `transfer_log`, `history`: record; `past` reads the history
//! - `privileges`, `sandbox`, `dumps`: give up root's powers, the rest of the file system, and core dumps
//! - `cache`: an endpoint that fetches what it serves
//! - `hosts`: an endpoint of several hosts; `crew` is what they do together
//!
//! The asking side:
//! - `endpoints`: keeps the known endpoints
//! - `known`: reaches them, for transfers too
//! - `enrol`: redeems a ticket
//! - `hand_in`: hands a job in
//! - `reservation`: asks a program of the site for a path
//!
//! Both: `ticket`, `trust`, `paths`, `sets`.
//!
//! Invariants:
//! - A secret (private key, credential) is in no `Debug` output, log, error or argument; its file has mode 0600 (F039).
//! - Nothing a peer names reaches outside the root, and the root never holds the endpoint's own files (F130).
//! - Every count a peer can drive up has a bound: connections, threads, enrolled clients, log bytes.
//!
//! Not here: endpoints that last for one session (`ssh`), the data path (`mover`), printing and signals (the program).

pub mod error;
mod time;
pub mod trust;
pub mod private_file;
pub mod records;
pub mod paths;
pub mod ticket;
pub mod endpoints;
mod known;
mod enrol;
mod enrolment;
pub mod clients;
mod census;
pub mod limited;
mod removed;
mod revoked;
pub mod issue;
pub mod gate;
mod refusals;
pub mod advertise;
pub mod transfer_log;
mod history;
pub mod past;
pub mod host;
mod warrant;
mod orders;
pub mod governor;
pub mod metrics;
pub mod events;
pub mod reservation;
pub mod hand_in;
pub mod sets;
mod cache;
pub mod crew;
pub mod hosts;
mod privileges;
mod descriptors;
mod dumps;
pub mod sandbox;
mod serve;

pub use cache::CacheOptions;
pub use descriptors::{connections_max, take_descriptors};
pub use dumps::forbid as forbid_dumps;
pub use endpoints::{Endpoint, EndpointBook};
pub use enrol::{Enrolled, enrol};
pub use enrolment::Enrolment;
pub use error::Error;
pub use host::{RunningJob, StoredRoots, rights};
pub use issue::Issue;
pub use known::{Known, connect};
pub use paths::Paths;
pub use privileges::Privileges;
pub use sandbox::Landlock;
pub use serve::{Activity, Pulse, ServeOptions, Served, StateLock, buffer_of, own_name, real_path};
pub use store::give_back_memory;
pub use ticket::{Ticket, TicketError};
pub use transfer::ConnectOptions;
