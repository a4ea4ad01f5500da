//! Questions about files: which paths a client may reach for them, and what is written down of changes.
//!
//! Invariants:
//! - What each question needs is in `rights`.
//! - What a ticket is limited to is its client's root: it is neither removed nor renamed.
//! - Staging of transfers is not reached.

use super::rights::{Deed, Rights};
use super::scope::Asked;
use super::{EndpointHost, check_depth, check_mandate, forbidden, names_contents};
use crate::cache::ONLY_SETS;
use crate::transfer_log::{path_text, plain_text};
use model::files::{Access, Question, Tally};
use model::synthetic;
use mover::files::{How, NotReached};
use mover::session::Grant;
use serde_json::{Map, json};
use std::os::fd::AsFd;
use store::Shelf;
use store::posix::target::Target;
use tracing::{debug, info};
use wire::Refusal;

impl EndpointHost {
    pub(super) fn reach_file(&self, grant: &Grant, path: &[u8], how: How) -> Result<Box<dyn Shelf>, NotReached> {
        let rights = self.rights(grant).map_err(NotReached::Refused)?;
        check_mandate(grant, Deed::of_reach(how), path).map_err(NotReached::Refused)?;
        let asked = self.check_file(&rights, path, how).map_err(NotReached::Refused)?;
        if self.cache.is_some() {
            return Err(NotReached::Refused(forbidden(path, ONLY_SETS)));
        }
        if !self.stored.is_empty() {
            return self.stored_shelf(&rights, path, how);
        }
        let failed = |e| NotReached::Failed(store::Error::new("open", b"", e));
        let root = self.root.as_fd();
        match how {
            How::Look => asked.target(root, names_contents(path)),
            How::Take if path.ends_with(b"/") => asked.target(root, false).and_then(Target::not_a_link),
            How::Take => asked.target(root, false),
            How::Make { with_parents } => asked.new_target(root, with_parents),
        }
        .map(|target| Box::new(target) as Box<dyn Shelf>)
        .map_err(failed)
    }

    fn check_file(&self, rights: &Rights, path: &[u8], how: How) -> Result<Asked, Refusal> {
        self.check(rights, Deed::of_reach(how), path)?;
        if synthetic::is_synthetic(path) {
            return Err(forbidden(path, "there is no storage behind this path"));
        }
        let asked = self.locate(rights, path)?;
        if matches!(how, How::Make { with_parents: true }) {
            check_depth(path, &asked.below)?;
        }
        Ok(asked)
    }

    /// Writes down what a client changed.
    pub(super) fn record_answer(&self, grant: &Grant, question: &Question, answered: &Result<Tally, Refusal>) {
        let (client, action) = (plain_text(&grant.name), question.word());
        let (tally, refused) = match answered {
            Ok(tally) => (*tally, ""),
            Err(refusal) => (Tally::default(), &refusal.text[..]),
        };
        let (files, directories, failed) = (tally.files, tally.directories, tally.failed);
        if question.access() == Access::Look {
            return debug!(client, pin = %grant.pin, action, files, directories, failed, refused, "files looked at");
        }
        let paths = question.paths();
        let first = paths.first().map(|path| path_text(path));
        let line = json!({"client": client, "pin": grant.pin.to_string(), "action": action, "paths": paths.len(),
            "first": first, "files": files, "directories": directories, "failed": failed,
            "refused": plain_text(refused)});
        let fields: Map<_, _> = line.as_object().cloned().unwrap_or_default();
        if files + directories > 0 {
            self.log.write("change", &fields);
        } else if !self.log.write_fruitless(grant.pin, &client, "change", &fields) {
            return;
        }
        info!(client, pin = %grant.pin, action, files, directories, failed, refused, "files changed");
    }
}
