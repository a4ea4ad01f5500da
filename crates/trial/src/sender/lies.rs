//! What a hostile endpoint says when it is asked for something, drawn anew from a seed.
//!
//! A lie is a command, what the endpoint describes for it, and what the program has to do about it.

use super::liar::{CONTENT, object};
use crate::random::Random;
use model::{Entry, Generation, Kind, Name, Node, ObjectId};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use store::SourceObject;

/// How a program ends that was lied to.
const BROKEN: Option<i32> = Some(7);
const UNASKED_NAMES: [&str; 8] =
    [".bashrc", ".profile", ".ssh", "report.exe", "Report", ".config", "reporu", "authorized_keys"];

pub struct Lie {
    pub name: &'static str,
    pub faults: &'static [&'static str],
    pub tell: fn(&mut Random) -> Told,
}

/// A lie, ready to be told.
#[derive(Default)]
pub struct Told {
    pub command: Vec<&'static str>,
    /// Lines of the file `list`.
    pub list: Vec<&'static str>,
    said: Vec<Said>,
    /// The exit code; any where the object alone may fail.
    pub code: Option<i32>,
    /// What the error has to name.
    pub unasked: Option<String>,
    /// Top names that may come into being.
    asked: Vec<&'static str>,
    /// What has to have arrived.
    delivered: Option<&'static str>,
}

struct Said {
    parent: u64,
    name: String,
    kind: Kind,
    mode: u32,
    is_endless: bool,
    seconds: i64,
    size_bytes: u64,
}

pub const LIES: [Lie; 15] = [
    Lie::new("the truth", &[], truth),
    Lie::new("a name beside the one asked for", &[], beside),
    Lie::new("another name for what gets a new one", &[], renamed),
    Lie::new("a name beside several", &[], beside_several),
    Lie::new("a tree beside the one asked for", &[], beside_tree),
    Lie::new("a link in place of what was asked for, and beside it", &["F041"], link_beside),
    Lie::new("a way through a link", &["F041", "F042"], through_link),
    Lie::new("what a rule leaves", &[], left),
    Lie::new("what no rule takes", &[], not_taken),
    Lie::new("what is out of bounds", &[], out_of_bounds),
    Lie::new("what is not in the list", &[], not_listed),
    Lie::new("another file for a pipe", &[], piped),
    Lie::new("another file for a move", &[], moved),
    Lie::new("files that were not to be generated", &[], generated),
    Lie::new("kinds and bits that need a flag", &[], kinds),
];

fn said(parent: u64, name: &str, kind: Kind) -> Said {
    let (name, size_bytes) = (name.to_owned(), CONTENT.len() as u64);
    Said { parent, name, kind, mode: 0o644, is_endless: false, seconds: 1_000_000_000, size_bytes }
}

fn file(parent: u64, name: &str) -> Said {
    said(parent, name, Kind::File)
}

fn directory(parent: u64, name: &str) -> Said {
    Said { mode: 0o755, ..said(parent, name, Kind::Directory) }
}

/// `OUTSIDE` stands for the directory that nothing may touch.
fn link(parent: u64, name: &str, to: &str) -> Said {
    said(parent, name, Kind::Symlink(to.as_bytes().into()))
}

fn pick<T: Clone>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize].clone()
}

/// A name that nobody asked for, or one that is drawn.
fn unasked_name(random: &mut Random) -> String {
    match random.below(3) {
        0 => format!("x{:x}", random.next()),
        _ => pick(random, &UNASKED_NAMES).to_owned(),
    }
}

/// The one asked for, and the lie before or behind it.
fn around(random: &mut Random, truth: Said, lie: Said) -> Vec<Said> {
    if random.below(2) == 0 { vec![truth, lie] } else { vec![lie, truth] }
}

fn verb(random: &mut Random) -> &'static str {
    pick(random, &["cp", "sync"])
}

fn truth(random: &mut Random) -> Told {
    let deep = vec![directory(0, "tree"), directory(1, "d"), file(2, "f"), link(1, "l", "anywhere")];
    let (source, said, delivered) = match random.below(3) {
        0 => ("evil:report", vec![file(0, "report")], "report"),
        1 => ("evil:a/tree", deep, "tree/d/f"),
        _ => ("evil:a/", vec![directory(0, "any"), file(1, "f"), file(0, "report")], "any/f"),
    };
    let asked = vec!["report", "tree", "any"];
    let command = vec![verb(random), source, "TO"];
    Told { command, said, code: Some(0), asked, delivered: Some(delivered), ..Told::default() }
}

fn beside(random: &mut Random) -> Told {
    let name = unasked_name(random);
    let said = around(random, file(0, "report"), file(0, &name));
    let command = vec![verb(random), "evil:deep/report", "TO"];
    Told { command, said, code: BROKEN, unasked: Some(name), asked: vec!["report"], ..Told::default() }
}

fn renamed(random: &mut Random) -> Told {
    let name = unasked_name(random);
    let said = match random.below(2) {
        0 => vec![file(0, &name)],
        _ => vec![directory(0, &name), file(1, "f")],
    };
    let command = vec!["cp", "evil:report", "to/new"];
    Told { command, said, code: BROKEN, unasked: Some(name), ..Told::default() }
}

fn beside_several(random: &mut Random) -> Told {
    let name = unasked_name(random);
    let mut said = vec![file(0, "one"), file(0, "two")];
    said.insert(random.below(3) as usize, file(0, &name));
    let command = vec!["cp", "evil:a/one", "evil:b/two", "TO"];
    Told { command, said, code: BROKEN, unasked: Some(name), asked: vec!["one", "two"], ..Told::default() }
}

fn beside_tree(random: &mut Random) -> Told {
    let name = unasked_name(random);
    let said = match random.below(2) {
        0 => vec![directory(0, "tree"), file(1, "f"), directory(0, &name), file(3, "authorized_keys")],
        _ => vec![directory(0, &name), file(1, "authorized_keys"), directory(0, "tree")],
    };
    let command = vec![verb(random), "evil:tree", "TO"];
    Told { command, said, code: BROKEN, unasked: Some(name), asked: vec!["tree"], ..Told::default() }
}

fn link_beside(random: &mut Random) -> Told {
    let name = unasked_name(random);
    let to = pick(random, &["/etc/passwd", "OUTSIDE", "../outside"]);
    let said = around(random, file(0, "report"), link(0, &name, to));
    let command = vec![verb(random), "evil:report", "TO"];
    Told { command, said, code: BROKEN, unasked: Some(name), asked: vec!["report"], ..Told::default() }
}

/// A link may come with a tree that was asked for; nothing is written through it.
fn through_link(random: &mut Random) -> Told {
    let to = pick(random, &["OUTSIDE", "../../outside", "../../outside/kept"]);
    let said = match random.below(2) {
        0 => vec![directory(0, "tree"), link(1, "d", to), directory(1, "d"), file(3, "f")],
        _ => vec![link(0, "tree", to), directory(0, "tree"), file(2, "f")],
    };
    Told { command: vec![verb(random), "evil:tree", "TO"], said, asked: vec!["tree"], ..Told::default() }
}

fn left(random: &mut Random) -> Told {
    let (rule, said, unasked) = match random.below(3) {
        0 => ("--exclude=*.log", vec![file(0, "a"), file(0, "x.log")], "x.log"),
        1 => ("--exclude=/.*", vec![file(0, "a"), directory(0, ".cache"), file(2, "f")], ".cache"),
        _ => ("--filter=- d/secret", vec![directory(0, "d"), file(1, "b"), file(1, "secret")], "d/secret"),
    };
    let (command, unasked) = (vec![verb(random), rule, "evil:a/", "TO"], Some(unasked.to_owned()));
    Told { command, said, code: BROKEN, unasked, asked: vec!["a", "d"], ..Told::default() }
}

fn not_taken(random: &mut Random) -> Told {
    let (said, unasked) = match random.below(3) {
        0 => (vec![file(0, "a.c"), file(0, "a.sh")], "a.sh"),
        1 => (vec![directory(0, "d"), file(1, "b.c"), file(1, "b.sh")], "d/b.sh"),
        // A directory for nothing.
        _ => (vec![file(0, "a.c"), directory(0, "e"), directory(0, "d"), file(3, "b.c")], "e"),
    };
    let command = vec![verb(random), "--include=*.c", "evil:a/", "TO"];
    let asked = vec!["a.c", "d"];
    Told { command, said, code: BROKEN, unasked: Some(unasked.to_owned()), asked, ..Told::default() }
}

fn out_of_bounds(random: &mut Random) -> Told {
    let (bound, lie) = match random.below(3) {
        0 => ("--max-size=3", file(0, "b")),
        1 => ("--min-size=100", file(0, "b")),
        _ => ("--newer-than=1d", file(0, "b")),
    };
    let (command, unasked) = (vec![verb(random), bound, "evil:a/", "TO"], Some("b".to_owned()));
    Told { command, said: vec![lie], code: BROKEN, unasked, ..Told::default() }
}

fn not_listed(random: &mut Random) -> Told {
    let (said, unasked) = match random.below(3) {
        0 => (vec![directory(0, "d"), file(1, "f"), file(1, "g")], "d/g"),
        1 => (vec![file(0, "one"), file(0, "two")], "two"),
        _ => (vec![directory(0, "e"), file(1, "f")], "e"),
    };
    let command = vec![verb(random), "--files-from=list", "evil:a/", "TO"];
    let (list, asked) = (vec!["d/f", "one"], vec!["d", "one"]);
    Told { command, list, said, code: BROKEN, unasked: Some(unasked.to_owned()), asked, ..Told::default() }
}

fn piped(random: &mut Random) -> Told {
    let name = unasked_name(random);
    let said = match random.below(2) {
        0 => vec![file(0, &name)],
        _ => vec![Said { is_endless: true, ..file(0, "report") }],
    };
    let unasked = said[0].name.clone();
    let command = match random.below(2) {
        0 => vec!["cat", "evil:report"],
        _ => vec!["cp", "evil:report", "-"],
    };
    Told { command, said, code: BROKEN, unasked: Some(unasked), ..Told::default() }
}

fn moved(random: &mut Random) -> Told {
    let name = unasked_name(random);
    let said = around(random, file(0, "report"), file(0, &name));
    let command = vec!["mv", "evil:report", "TO"];
    Told { command, said, code: BROKEN, unasked: Some(name), asked: vec!["report"], ..Told::default() }
}

fn generated(random: &mut Random) -> Told {
    let name = match random.below(3) {
        0 => "f000000002".to_owned(),
        1 => "f1".to_owned(),
        _ => unasked_name(random),
    };
    let said = vec![file(0, "f000000000"), file(0, &name)];
    let command = vec!["cp", "evil:gen:2x4", "TO"];
    Told { command, said, code: BROKEN, unasked: Some(name), asked: vec!["f000000000"], ..Told::default() }
}

/// Without a flag nothing of them is taken; bits that a mode may have are left out.
fn kinds(random: &mut Random) -> Told {
    let report = || file(0, "report");
    let (lie, code) = match random.below(3) {
        0 => (Said { kind: Kind::Node(Node::Fifo), ..report() }, BROKEN),
        1 => (Said { kind: Kind::Node(Node::BlockDevice(0x800)), ..report() }, BROKEN),
        _ => (Said { mode: 0o6755, ..report() }, Some(0)),
    };
    Told {
        command: vec![verb(random), "evil:report", "TO"],
        said: vec![lie],
        code,
        asked: vec!["report"],
        ..Told::default()
    }
}

impl Told {
    /// As the source describes it, ids counted.
    pub fn entries(&self, outside: &Path) -> Vec<SourceObject> {
        let entry = |(id, said): (u64, &Said)| {
            let kind = match &said.kind {
                Kind::Symlink(to) if **to == *b"OUTSIDE" => Kind::Symlink(outside.as_os_str().as_bytes().into()),
                kind => kind.clone(),
            };
            let modified = model::Timestamp { seconds: said.seconds, nanoseconds: 0 };
            let entry = Entry {
                id: ObjectId(id),
                parent: ObjectId(said.parent),
                name: Name::new(said.name.as_bytes()).expect("lies have names"),
                kind,
                mode: said.mode,
                generation: Generation { size_bytes: said.size_bytes, modified, ..Generation::default() },
                attributes: None,
            };
            object(entry, said.is_endless)
        };
        (1..).zip(&self.said).map(entry).collect()
    }

    pub fn may_write(&self, path: &Path) -> bool {
        let top = path.components().next().map(|top| top.as_os_str().as_bytes().to_vec()).unwrap_or_default();
        top.starts_with(crate::check::STAGING_PREFIX.as_bytes())
            || self.asked.iter().any(|asked| asked.as_bytes() == top)
    }

    /// # Errors
    /// Says what is missing, or has a bit that nobody asked for.
    pub fn arrived(&self, to: &Path) -> Result<(), String> {
        if let Some(delivered) = self.delivered
            && std::fs::read(to.join(delivered)).ok().as_deref() != Some(CONTENT)
        {
            return Err(format!("{delivered} did not arrive"));
        }
        let mode = std::fs::symlink_metadata(to.join("report")).map_or(0, |there| there.permissions().mode());
        if mode & 0o7000 != 0 { Err(format!("report runs as somebody else: {mode:o}")) } else { Ok(()) }
    }
}
