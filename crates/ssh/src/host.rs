//! The remote side as a host of jobs: each is held to what was opened for the session (`offer`).
//!
//! Invariants:
//! - A job that names another path, or the other direction, is refused.
//! - A client that was sent by somebody else's command sends no more than that said (`terms`).

use super::offer::{Offer, in_home};
use super::terms::Terms;
use daemon::host::{equipped, forbidden, generated, refuse};
use model::{JobId, Pin, TransferOptions};
use mover::files::{Here, How, NotReached, Reach};
use mover::session::{Grant, Host, HostFacts, Opened};
use mover::{Ending, Progress};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use store::posix::facts::file_system;
use store::posix::{PosixSink, PosixSource};
use store::synthetic::{NULL_FILE_SYSTEM, NullSink};
use store::{Rehearsal, Shelf};
use wire::handshake::Direction;
use wire::message::Open;
use wire::{CloseCode, Refusal};

/// Under whom staging is kept. Whoever logs in as this user may do anything with it by other means, and a host that sends for a
/// client has a new key each time.
const WHOEVER: Pin = Pin(*b"thalweg: whoever ssh let in here");

/// The remote side as a host of jobs.
pub struct OfferHost {
    pub name: String,
    /// The keys that are let in.
    pub clients: Vec<Pin>,
    pub paths: Vec<Vec<u8>>,
    pub offer: Offer,
    /// What the client was told to send, where it is another host.
    pub terms: Option<Terms>,
}

impl Host for OfferHost {
    fn facts(&self) -> HostFacts {
        let is_read_only =
            !matches!(self.offer, Offer::Write(_) | Offer::Files | Offer::Synthetic(Direction::ClientSends));
        HostFacts { name: self.name.clone(), is_read_only }
    }

    fn authorise(&self, peer: Pin, _credential: &[u8]) -> std::result::Result<Grant, Refusal> {
        if !self.clients.contains(&peer) {
            return Err(Refusal::new(CloseCode::Authentication, "this endpoint is for another client"));
        }
        Ok(Grant {
            pin: WHOEVER,
            name: "ssh".to_owned(),
            account: "ssh".to_owned(),
            may_write: !self.facts().is_read_only,
            warrant: None,
        })
    }

    fn open(
        &self,
        _grant: &Grant,
        _job: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> std::result::Result<Opened, Refusal> {
        let way = match &self.offer {
            Offer::Files => return Err(forbidden(&open.paths[0], "this session was opened for queries about files")),
            Offer::Read(_) => Direction::ServerSends,
            Offer::Write(_) => Direction::ClientSends,
            Offer::Synthetic(way) => *way,
        };
        if direction != way || open.paths != self.paths {
            return Err(forbidden(&open.paths[0], "this session was not opened for that"));
        }
        if let Some(terms) = self.terms.as_ref().filter(|_| way == Direction::ClientSends) {
            terms.check(open, options)?;
        }
        let asked = self.terms.as_ref().map(Terms::asked);
        match &self.offer {
            Offer::Files => unreachable!("refused above"),
            Offer::Read(readables) => {
                let mut source = PosixSource::new();
                for (readable, path) in readables.iter().zip(&open.paths) {
                    readable.add_to(&mut source).map_err(|e| refuse(path, &e))?;
                }
                source.select(options.selection.clone());
                source.keep(options.fidelity);
                let is_single = source.is_single_object();
                Ok(Opened::Send { source: Arc::new(source), is_single, observer: None })
            }
            Offer::Write(writable) if options.is_dry_run => {
                let (there, rename_to) = writable.look_at_destination(open)?;
                let sink = there.map(|there| equipped(PosixSink::new(there.clone(), there, options.chmod), options));
                let sink = Arc::new(Rehearsal::new(sink));
                Ok(Opened::Receive { sink, rename_to, observer: None, file_system: String::new(), asked })
            }
            Offer::Write(writable) => {
                let (directory, rename_to) = writable.open_destination(open, options.fsync)?;
                let file_system = file_system(directory.as_fd()).to_owned();
                let sink = equipped(PosixSink::new(directory.clone(), directory, options.chmod), options);
                Ok(Opened::Receive { sink: Arc::new(sink), rename_to, observer: None, file_system, asked })
            }
            Offer::Synthetic(Direction::ClientSends) => {
                let file_system = NULL_FILE_SYSTEM.to_owned();
                Ok(Opened::Receive {
                    sink: Arc::new(NullSink),
                    rename_to: None,
                    observer: None,
                    file_system,
                    asked: None,
                })
            }
            Offer::Synthetic(Direction::ServerSends) => {
                Ok(Opened::Send { source: Arc::new(generated(open)?), is_single: false, observer: None })
            }
        }
    }

    fn reach(&self, _grant: &Grant, path: &[u8], how: How) -> std::result::Result<Box<dyn Shelf>, NotReached> {
        if !matches!(self.offer, Offer::Files) {
            return Err(NotReached::Refused(forbidden(path, "this session was not opened for that")));
        }
        let whole = in_home(path).map_err(|e| NotReached::Refused(Refusal::new(CloseCode::Internal, &e.message)))?;
        let whole = whole.as_os_str().as_bytes();
        Here.reach(if whole.is_empty() { b"." } else { whole }, how)
    }

    fn ended(&self, _grant: &Grant, job: JobId, _direction: Direction, _progress: &Progress, ending: &Ending) {
        tracing::debug!(%job, %ending, "job ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Access, BoundTerms, CopyTerms, PathBytes, PinText, ServeRequest, SparedTerms};
    use model::Fidelity;
    use model::options::Deletion;
    use std::path::Path;

    fn host(access: Access, path: &Path) -> OfferHost {
        let bytes = path.as_os_str().as_bytes().to_vec();
        let request = ServeRequest {
            access,
            paths: vec![PathBytes(bytes.clone())],
            clients: vec![PinText(Pin([1; 32]))],
            ports: None,
            is_tunnel_only: false,
            memory_bytes: 0,
            congestion: None,
            terms: None,
        };
        let (offer, paths) = (Offer::open(&request).ok().unwrap(), vec![bytes]);
        OfferHost { name: "far".into(), clients: vec![Pin([1; 32])], paths, offer, terms: None }
    }

    fn open(
        host: &OfferHost,
        direction: Direction,
        path: &Path,
        is_single: bool,
    ) -> std::result::Result<Opened, Refusal> {
        let grant = host.authorise(Pin([1; 32]), b"").unwrap();
        let paths = vec![path.as_os_str().as_bytes().to_vec()];
        let open = Open {
            job: 1,
            job_id: vec![0; 16],
            direction: direction as u32,
            paths,
            options: None,
            is_single,
            is_sequential: false,
        };
        host.open(&grant, JobId([0; 16]), direction, &open, &TransferOptions::default())
    }

    #[test]
    fn directories_are_made_when_a_job_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        let path = dir.path().join("a/b/c");
        let there = host(Access::Write, &path);
        assert!(!dir.path().join("a/b").exists());
        let opened = open(&there, Direction::ClientSends, &path, true).unwrap();
        let Opened::Receive { rename_to, .. } = opened else { panic!("a sink is opened") };
        assert_eq!(rename_to.unwrap().as_bytes(), b"c");
        assert!(dir.path().join("a/b").is_dir() && !dir.path().join("a/b/c").exists());
        open(&there, Direction::ClientSends, &path, false).unwrap();
        assert!(dir.path().join("a/b/c").is_dir());
    }

    #[test]
    fn another_path_another_direction_and_another_client_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), b"x").unwrap();
        let path = dir.path().join("f");
        let there = host(Access::Read, &path);
        open(&there, Direction::ServerSends, &path, false).unwrap();
        for refused in [
            open(&there, Direction::ClientSends, &path, false),
            open(&there, Direction::ServerSends, dir.path(), false),
            open(&there, Direction::ServerSends, Path::new("null:"), false),
        ] {
            assert_eq!(refused.err().unwrap().code, CloseCode::Forbidden);
        }
        assert_eq!(there.authorise(Pin([2; 32]), b"x").unwrap_err().code, CloseCode::Authentication);
        assert!(there.facts().is_read_only && !host(Access::Write, &path).facts().is_read_only);
    }

    #[test]
    fn a_host_that_copies_here_takes_away_and_keeps_no_more_than_the_command_said() {
        let dir = tempfile::tempdir().unwrap();
        let told = CopyTerms {
            sources: vec![PathBytes(b"a/report".to_vec())],
            rules: vec!["- *.o".to_owned()],
            may_delete: false,
            backup: None,
            fidelity: Fidelity { mode: true, ..Fidelity::default() }.to_bits(),
            bounds: BoundTerms::default(),
            listed: None,
            spares: SparedTerms::default(),
            chmod: None,
        };
        let mut there = host(Access::Write, dir.path());
        there.terms = Some(Terms::of(&told).unwrap());
        let open = |there: &OfferHost, options: &TransferOptions| {
            let paths = vec![dir.path().as_os_str().as_bytes().to_vec()];
            let open = Open { job: 1, direction: Direction::ClientSends as u32, paths, ..Open::default() };
            let grant = there.authorise(Pin([1; 32]), b"").unwrap();
            there.open(&grant, JobId([0; 16]), Direction::ClientSends, &open, options)
        };
        let plain = TransferOptions::default;
        let deletion = Some(Deletion { is_at_root: true, removals_max: None });
        let keeps = |fidelity| TransferOptions { fidelity, ..plain() };
        let owner = Fidelity { owner: true, mode: true, ..Fidelity::default() };
        for options in [
            TransferOptions { deletion, ..plain() },
            TransferOptions { backup: Some(b"old".to_vec()), ..plain() },
            keeps(owner),
        ] {
            assert_eq!(open(&there, &options).err().unwrap().code, CloseCode::Forbidden);
        }
        let mode = Fidelity { mode: true, ..Fidelity::default() };
        let opened = open(&there, &keeps(mode)).unwrap();
        assert!(
            matches!(opened, Opened::Receive { asked: Some(_), .. }),
            "what it sends is held to what was asked for"
        );
        there.terms = Some(Terms::of(&CopyTerms { may_delete: true, ..told.clone() }).unwrap());
        open(&there, &TransferOptions { deletion, ..plain() }).unwrap();
        assert!(Terms::of(&CopyTerms { rules: vec!["x".to_owned()], ..told }).is_err());
    }

    #[test]
    fn a_confined_remote_side_reads_what_was_asked_for_and_nothing_beside() {
        if !needs::landlock() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("tree/sub")).unwrap();
        std::fs::write(dir.path().join("tree/sub/f"), b"x").unwrap();
        std::fs::write(dir.path().join("beside"), b"y").unwrap();
        let tree = dir.path().join("tree");
        // A thread of its own: it does not get out again.
        let confined = std::thread::spawn(move || {
            let there = host(Access::Read, &tree);
            assert_ne!(there.offer.confine(), "off");
            assert_eq!(std::fs::read(tree.join("sub/f")).unwrap(), b"x");
            assert!(std::fs::read(dir.path().join("beside")).is_err());
            assert!(std::fs::write(tree.join("new"), b"z").is_err());
            let Opened::Send { source, .. } = open(&there, Direction::ServerSends, &tree, false).unwrap() else {
                panic!("a source is opened")
            };
            let mut found = 0;
            source
                .scan(&mut |one| {
                    found += usize::from(matches!(one, store::Found::Object(_)));
                    true
                })
                .unwrap();
            assert_eq!(found, 3);
        });
        confined.join().unwrap();
    }
}
