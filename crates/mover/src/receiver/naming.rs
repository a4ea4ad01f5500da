//! What a described object is to be called: checked against what is known of others before anything is decided of it.

use super::complete;
use super::decide::Decide;
use crate::limits::TOP_NAMES_MAX;
use model::{Entry, FailureKind, Kind, Name, ObjectId};
use store::STAGING_PREFIX;
use wire::listing::REPLACEMENT_FIRST;

impl Decide<'_> {
    /// Checks an entry's name against what is known of others.
    pub(super) fn named(&mut self, entry: &mut Entry, replaces: Option<u64>) -> Result<(), (FailureKind, String)> {
        let refused = |kind, why: &str| (kind, why.to_owned());
        if let Some(census) = self.job.census() {
            census.note(entry.parent, &entry.name, (entry.kind == Kind::Directory).then_some(entry.id));
        }
        if entry.name.as_bytes().starts_with(STAGING_PREFIX) {
            return Err(refused(FailureKind::NameRefused, "names that begin so are kept for staging"));
        }
        if entry.parent == ObjectId::ROOT {
            self.rename(entry).map_err(|e| (e.kind, e.message()))?;
            if self.job.is_sealed_list(entry) {
                return Err(refused(FailureKind::NameRefused, complete::TAKEN));
            }
            let is_known = self.top_names.contains(&entry.name);
            if self.top_names.len() < TOP_NAMES_MAX && entry.id.0 < REPLACEMENT_FIRST {
                self.top_names.insert(entry.name.clone());
            }
            if is_known && entry.id.0 < REPLACEMENT_FIRST {
                return Err(refused(FailureKind::Duplicate, "two sources have this name at the destination"));
            }
        }
        if entry.id.0 >= REPLACEMENT_FIRST {
            self.void_predecessor(entry, replaces);
        }
        Ok(())
    }

    /// What is described again is void under its earlier id, also if the content that says so is lost with its stream.
    /// What was described under this name may have another one by now, and be about to be published.
    fn void_predecessor(&self, entry: &Entry, replaces: Option<u64>) {
        let earlier = match replaces {
            Some(id) => Some(id).filter(|id| *id > 0),
            None => self.job.table.lock().unwrap().find_place(entry.parent, &entry.name),
        };
        if let Some(id) = earlier.filter(|id| *id != entry.id.0) {
            self.job.void(id);
        }
    }

    /// Gives a file or link its new name. A directory goes below a directory of that name instead (rsync's rule).
    fn rename(&self, entry: &mut Entry) -> store::Result<()> {
        let mut rename_to = self.job.decider.rename_to.lock().unwrap();
        match (&*rename_to, &entry.kind) {
            (None, _) => {}
            (Some(name), Kind::Directory) => {
                self.job.sink.enter(name)?;
                *rename_to = None;
            }
            (Some(name), _) => entry.name = name.clone(),
        }
        Ok(())
    }

    /// Where an object with an unusable name would have gone; its name is shown as far as it can be.
    pub(super) fn bad_path(&self, parent: ObjectId, name: &[u8]) -> Vec<u8> {
        let placeholder = Name::new(b"?").expect("a constant name");
        let entry = Entry {
            id: ObjectId::ROOT,
            parent,
            name: placeholder,
            kind: Kind::File,
            mode: 0,
            generation: Default::default(),
            attributes: None,
        };
        let mut path = self.job.sink.path(&entry);
        path.pop();
        path.extend_from_slice(&name[..name.len().min(model::name::NAME_BYTES_MAX)]);
        path
    }
}
