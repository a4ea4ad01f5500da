//! Whoever serves, as an endpoint's sessions see it: who its clients are, and what of its storage they may reach.
//!
//! Not here: the sessions (`server`), and what a right is (whoever implements `Host`).

use super::roster::{Roster, Who};
use crate::files::{How, NotReached};
use crate::job::{Ending, Observer};
use crate::progress::Progress;
use crate::receiver::Asked;
use model::files::{Question, Tally};
use model::{Class, DigestAlgorithm, JobId, Name, Pin, TransferOptions, Warrant};
use net::route::LocalAddress;
use std::sync::Arc;
use store::spool::Spool;
use store::{Shelf, Sink, Source};
use wire::handshake::Direction;
use wire::message::Open;
use wire::{CloseCode, Message, Refusal};

/// What an authenticated peer is and may.
#[derive(Clone, Debug)]
pub struct Grant {
    pub pin: Pin,
    /// What the endpoint calls this client, for logs.
    pub name: String,
    /// Whose share it lives from, with all other keys of that account: the ticket that enrolled it.
    pub account: String,
    pub may_write: bool,
    /// In whose name it is here, where that is not its own: what this allows, and no more.
    pub warrant: Option<Arc<Mandate>>,
}

impl Grant {
    /// Whose attempts its jobs are. A key that works for several clients has the jobs of each, and none that one of them names can be
    /// taken for another's.
    pub fn party(&self) -> Pin {
        let Some(mandate) = &self.warrant else { return self.pin };
        let both = [self.pin.0, mandate.issuer.0].concat();
        Pin(DigestAlgorithm::Blake3.of_object(&both).to_bytes().try_into().expect("a BLAKE3 digest has 32 bytes"))
    }
}

impl Who {
    pub(super) fn of(grant: &Grant, job: JobId, class: Class) -> Who {
        Who { job, peer: grant.pin, user: grant.account.clone(), name: grant.name.clone(), class }
    }
}

/// A warrant that was checked, and the key that signed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mandate {
    pub warrant: Warrant,
    pub issuer: Pin,
}

/// What an endpoint tells of itself.
#[derive(Clone, Debug)]
pub struct HostFacts {
    pub name: String,
    pub is_read_only: bool,
}

/// A job that the host lets happen.
pub enum Opened {
    Receive {
        sink: Arc<dyn Sink>,
        rename_to: Option<Name>,
        observer: Option<Arc<dyn Observer>>,
        file_system: String,
        /// What the client may send, where somebody else decided that.
        asked: Option<Asked>,
    },
    Send {
        source: Arc<dyn Source>,
        is_single: bool,
        observer: Option<Arc<dyn Observer>>,
    },
}

/// Whoever serves: knows its clients and its root.
pub trait Host: Send + Sync {
    fn facts(&self) -> HostFacts;

    /// Where it can be reached on the port that its clients use: told to those who ask.
    fn addresses(&self) -> Vec<LocalAddress> {
        Vec::new()
    }

    /// Who the peer is; a credential enrols its key.
    fn authorise(&self, peer: Pin, credential: &[u8]) -> Result<Grant, Refusal>;

    /// Opens the destination (client sends) or the sources (server sends) below the root.
    fn open(
        &self,
        grant: &Grant,
        job: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> Result<Opened, Refusal>;

    /// The jobs of this endpoint, where somebody shares rates out among them.
    fn roster(&self) -> Option<&Arc<Roster>> {
        None
    }

    /// What a job that was opened counts beside others.
    fn class(&self, grant: &Grant, options: &TransferOptions) -> Class {
        let _ = grant;
        options.class.unwrap_or_default()
    }

    /// Whether the peer, or one of its jobs, may go on: asked every few seconds, so that rights that end while a job runs
    /// end the job too (F028, F029). What is verified is kept. A host that cannot tell at this moment says `Internal`, and is
    /// believed a few times (`review`).
    fn may_go_on(&self, grant: &Grant, job: Option<(Direction, &[Vec<u8>])>) -> Result<(), Refusal> {
        let _ = (grant, job);
        Ok(())
    }

    /// Finds what a path leads to, for a question about files. Asked for every path, so that rights that have ended end
    /// the answer.
    fn reach(&self, grant: &Grant, path: &[u8], how: How) -> Result<Box<dyn Shelf>, NotReached> {
        let _ = (grant, path, how);
        Err(NotReached::Refused(Refusal::new(CloseCode::Forbidden, "questions about files are not answered here")))
    }

    /// A question about files was answered.
    fn answered(&self, grant: &Grant, question: &Question, answered: &Result<Tally, Refusal>) {
        let _ = (grant, question, answered);
    }

    /// Answers a request about jobs that are handed in: what is told before its end, and the attempt that the end names.
    fn request(&self, grant: &Grant, message: Message) -> Result<(Vec<Message>, u32), Refusal> {
        let _ = (grant, message);
        Err(Refusal::new(CloseCode::Forbidden, "jobs are not taken here"))
    }

    /// Where what its jobs receive may wait for slow storage.
    fn buffer(&self) -> Option<Arc<Spool>> {
        None
    }

    /// A job of this host came to its end.
    fn ended(&self, grant: &Grant, job: JobId, direction: Direction, progress: &Progress, ending: &Ending);
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::warrant::Verbs;

    #[test]
    fn a_key_has_jobs_of_its_own_and_of_each_client_that_it_works_for() {
        let grant = |issuer: Option<u8>| {
            let warrant = Warrant {
                holder: Pin([1; 32]),
                audience: Pin([2; 32]),
                job: JobId([3; 16]),
                verbs: Verbs { read: true, write: true, delete: false },
                not_before: 0,
                expires: 1,
                id: [4; 16],
                paths: Vec::new(),
            };
            let warrant = issuer.map(|issuer| Arc::new(Mandate { warrant, issuer: Pin([issuer; 32]) }));
            Grant { pin: Pin([1; 32]), name: String::new(), account: String::new(), may_write: true, warrant }
        };
        let party = |issuer| grant(issuer).party();
        assert!(party(None) == Pin([1; 32]) && party(Some(5)) == party(Some(5)));
        assert!(party(Some(5)) != party(Some(6)) && party(Some(5)) != party(None));
    }
}
