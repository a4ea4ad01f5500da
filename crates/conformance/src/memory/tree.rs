//! Objects by number, and the names that lead to them.

use model::{Generation, Name, Node, Timestamp, VersionToken};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub const ROOT: u64 = 0;

#[derive(Clone, Debug)]
pub enum Body {
    Directory(BTreeMap<Name, u64>),
    File(Arc<[u8]>),
    Symlink(Box<[u8]>),
    Node(Node),
}

#[derive(Clone, Debug)]
pub struct Object {
    pub body: Body,
    pub mode: u32,
    pub modified: Timestamp,
    /// Counts every change.
    pub version: u64,
    pub links: u64,
}

impl Object {
    pub fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    pub fn size_bytes(&self) -> u64 {
        match &self.body {
            Body::File(content) => content.len() as u64,
            Body::Symlink(target) => target.len() as u64,
            Body::Directory(_) | Body::Node(_) => 0,
        }
    }

    /// The version stands where a file system has the time of the last change.
    pub fn generation(&self, number: u64) -> Generation {
        let version = VersionToken::new(self.changed(), number, 0);
        Generation { size_bytes: self.size_bytes(), modified: self.modified, version }
    }

    pub fn changed(&self) -> Timestamp {
        Timestamp { seconds: self.version as i64, nanoseconds: 0 }
    }
}

pub struct Tree {
    objects: HashMap<u64, Object>,
    next: u64,
    version: u64,
}

impl Default for Tree {
    fn default() -> Tree {
        let modified = Timestamp::default();
        let root = Object { body: Body::Directory(BTreeMap::new()), mode: 0o755, modified, version: 0, links: 1 };
        Tree { objects: HashMap::from([(ROOT, root)]), next: ROOT, version: 0 }
    }
}

impl Tree {
    pub fn object(&self, number: u64) -> Option<&Object> {
        self.objects.get(&number)
    }

    /// Changes what is said of an object.
    pub fn change(&mut self, number: u64, change: impl FnOnce(&mut Object)) {
        self.version += 1;
        if let Some(object) = self.objects.get_mut(&number) {
            change(object);
            object.version = self.version;
        }
    }

    /// The names of a directory, in the order of their bytes; none of what is no directory.
    pub fn names(&self, directory: u64) -> Vec<(Name, u64)> {
        match self.object(directory).map(|object| &object.body) {
            Some(Body::Directory(names)) => names.iter().map(|(name, number)| (name.clone(), *number)).collect(),
            _ => Vec::new(),
        }
    }

    pub fn child(&self, directory: u64, name: &Name) -> Option<u64> {
        match &self.object(directory)?.body {
            Body::Directory(names) => names.get(name).copied(),
            _ => None,
        }
    }

    /// Makes an object under a name, in place of what has it.
    pub fn insert(&mut self, directory: u64, name: &Name, body: Body, mode: u32, modified: Timestamp) -> u64 {
        self.next += 1;
        self.version += 1;
        let number = self.next;
        self.objects.insert(number, Object { body, mode, modified, version: self.version, links: 0 });
        self.link(directory, name, number);
        number
    }

    /// Gives an object a name, in place of what has it.
    ///
    /// # Panics
    /// When the directory is none.
    pub fn link(&mut self, directory: u64, name: &Name, number: u64) {
        self.objects.get_mut(&number).expect("an object that is there").links += 1;
        let above = self.objects.get_mut(&directory).expect("a directory that is there");
        let Body::Directory(names) = &mut above.body else { panic!("a name in what is no directory") };
        if let Some(replaced) = names.insert(name.clone(), number) {
            self.unlink(replaced);
        }
    }

    /// Takes a name away; true when it was there. What is below a directory goes with it.
    pub fn remove(&mut self, directory: u64, name: &Name) -> bool {
        let Some(Object { body: Body::Directory(names), .. }) = self.objects.get_mut(&directory) else { return false };
        let Some(number) = names.remove(name) else { return false };
        self.unlink(number);
        true
    }

    fn unlink(&mut self, number: u64) {
        let Some(object) = self.objects.get_mut(&number) else { return };
        object.links -= 1;
        if object.links > 0 {
            return;
        }
        if let Some(Object { body: Body::Directory(names), .. }) = self.objects.remove(&number) {
            names.into_values().for_each(|below| self.unlink(below));
        }
    }
}
