//! The names of one directory, in their order, with what is known of each.
//!
//! Invariants: a name is one component, and stands there once; what a server can make us hold of one directory is bounded. Our own
//! staging is not listed.

use super::calls::target_of;
use super::packet::status;
use super::session::{Fault, Result, Session};
use crate::tree::{Child, Children, DEPTH_MAX, NAMES_MAX, ODD_MAX, WIDTH, absent, join};
use std::collections::VecDeque;

impl Session {
    pub fn children(&self, path: &[u8], with_targets: bool) -> Result<Children> {
        if path.iter().filter(|byte| **byte == b'/').count() > DEPTH_MAX {
            return Err(Fault::Malformed("its directories are nested more than 256 deep"));
        }
        let handle = self.opendir(path).handle()?;
        let read = self.read_names(&handle);
        let _ = self.close(&handle);
        let mut children = read?;
        children.sort();
        self.complete(path, &mut children)?;
        if with_targets {
            self.read_targets(path, &mut children)?;
        }
        Ok(children)
    }

    fn read_names(&self, handle: &[u8]) -> Result<Children> {
        let (mut children, mut count) = (Children::default(), 0);
        let mut waiting = VecDeque::from([self.readdir(handle), self.readdir(handle)]);
        while let Some(ticket) = waiting.pop_front() {
            let names = match ticket.names() {
                Err(fault) if fault.is(status::EOF) => return Ok(children),
                names => names?,
            };
            waiting.push_back(self.readdir(handle));
            // Also of what is not kept: a server that lists `.` for ever is not listened to for ever.
            count += names.len();
            for (bytes, attributes) in names {
                children.add(&bytes, attributes, Vec::new());
            }
            if count > NAMES_MAX {
                return Err(Fault::Malformed("it lists more than 2,000,000 names in one directory"));
            }
        }
        Ok(children)
    }

    /// Asks singly for what the listing did not say; what is gone by now is left out. What is there, and may be anything, is told.
    fn complete(&self, path: &[u8], children: &mut Children) -> Result<()> {
        let Children { found, odd } = children;
        let mut lacking: Vec<&mut Child> = found.iter_mut().filter(|child| !child.attributes.is_full()).collect();
        for some in lacking.chunks_mut(WIDTH) {
            let tickets: Vec<_> = some.iter().map(|child| self.lstat(&join(path, child.name.as_bytes()))).collect();
            for (child, ticket) in some.iter_mut().zip(tickets) {
                let there = absent(ticket.attributes())?;
                if there.is_some_and(|there| there.mode.is_none()) && odd.len() < ODD_MAX {
                    odd.push(format!("the server does not tell what {} is", child.name));
                }
                child.attributes = there.unwrap_or_default();
            }
        }
        found.retain(|child| child.attributes.mode.is_some());
        Ok(())
    }

    fn read_targets(&self, path: &[u8], children: &mut Children) -> Result<()> {
        let mut links: Vec<&mut Child> = children.found.iter_mut().filter(|child| child.attributes.is_link()).collect();
        for some in links.chunks_mut(WIDTH) {
            let tickets: Vec<_> = some.iter().map(|child| self.readlink(&join(path, child.name.as_bytes()))).collect();
            for (child, ticket) in some.iter_mut().zip(tickets) {
                match target_of(ticket) {
                    Ok(target) => child.target = target,
                    Err(Fault::Lost(why)) => return Err(Fault::Lost(why)),
                    Err(_) if children.odd.len() >= ODD_MAX => {}
                    Err(_) => children.odd.push(format!("the target of the link {} cannot be read", child.name)),
                }
            }
        }
        children.found.retain(|child| !child.attributes.is_link() || !child.target.is_empty());
        Ok(())
    }
}
