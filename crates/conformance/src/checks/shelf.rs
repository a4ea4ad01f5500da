//! Questions about files.

use crate::Ability::{Directories, Keeps, Renames, Shelf, Sink, Symlinks};
use crate::check::{Check, Fault, ensure};
use crate::job::{MODIFIED, content, read_to_end};
use crate::stand::Place;
use model::FailureKind;
use model::files::{ALL_LEVELS, FileKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::How::{Look, Make, Take};
use store::{Slots, Surveyed, Visit};

pub const CHECKS: &[Check] = &[
    Check {
        name: "look-tells-what-stands",
        says: "a look tells kind, size and time of what stands at a path, and that nothing stands there",
        takes: &[Sink, Shelf, Keeps, Directories],
        run: looks,
    },
    Check {
        name: "look-follows-no-link",
        says: "a look at a symbolic link tells of the link, and a path that leads through one is refused",
        takes: &[Sink, Shelf, Keeps, Symlinks],
        run: follows_no_link,
    },
    Check {
        name: "list-is-in-order",
        says: "a list has a directory before what is in it and siblings by the bytes of their names, as deep as was asked",
        takes: &[Sink, Shelf, Keeps, Directories],
        run: lists,
    },
    Check {
        name: "list-stops",
        says: "a list ends at once when its listener says so",
        takes: &[Sink, Shelf, Keeps, Directories],
        run: stops,
    },
    Check {
        name: "walk-reads",
        says: "every file that a walk comes upon can be read, in other threads too, and each directory is left after what is in it",
        takes: &[Sink, Shelf, Keeps, Directories],
        run: walks,
    },
    Check {
        name: "make-makes-directories",
        says: "a directory is made; one that is there is accepted if it may be; a file is not taken for one",
        takes: &[Sink, Shelf, Keeps, Directories],
        run: makes,
    },
    Check {
        name: "rename-is-one-step",
        says: "an object gets another name, with all below it, and replaces what has that name only if it may",
        takes: &[Sink, Shelf, Keeps, Directories, Renames],
        run: renames,
    },
    Check {
        name: "remove-takes-one",
        says: "a file is removed, a directory only where it may be one and is empty",
        takes: &[Sink, Shelf, Keeps, Directories],
        run: removes,
    },
    Check {
        name: "remove-takes-only-that-version",
        says: "an object that changed since it was looked at is not removed",
        takes: &[Sink, Shelf, Keeps, Directories],
        run: removes_versions,
    },
    Check {
        name: "remove-takes-trees",
        says: "a tree is removed with everything in it, and what its links point to stays",
        takes: &[Sink, Shelf, Keeps, Directories],
        run: removes_trees,
    },
    Check {
        name: "the-root-stays",
        says: "the root of the place is neither removed nor renamed",
        takes: &[Sink, Shelf, Keeps, Directories],
        run: root_stays,
    },
];

fn slots() -> Arc<Slots> {
    Slots::new(128)
}

fn kind_of<T>(result: store::Result<T>) -> Option<FailureKind> {
    result.err().map(|e| e.kind)
}

fn looks(place: &dyn Place) -> Result<(), Fault> {
    place.stocked(false)?;
    let large = place.shelf(b"large", Look)?.look()?;
    ensure!(large.kind == FileKind::File && large.size_bytes == 300_001, "a file is {:?}", large.kind);
    ensure!(large.modified == place.kept(MODIFIED), "it has the time {:?}", large.modified);
    let inner = place.shelf(b"d/inner", Look)?.look()?;
    ensure!(inner.is_directory(), "a directory is {:?}", inner.kind);
    let root = place.shelf(b"", Look)?.look()?;
    ensure!(root.is_directory(), "the root is {:?}", root.kind);
    for path in [&b"none"[..], b"d/none", b"none/none"] {
        let kind = kind_of(place.shelf(path, Look).and_then(|shelf| shelf.look()));
        ensure!(kind == Some(FailureKind::NotFound), "{} came to {kind:?}", path.escape_ascii());
    }
    Ok(())
}

fn follows_no_link(place: &dyn Place) -> Result<(), Fault> {
    place.stocked(true)?;
    for (path, target) in [(&b"link"[..], &b"small"[..]), (b"astray", b"../no/where")] {
        let kind = place.shelf(path, Look)?.look()?.kind;
        ensure!(kind == FileKind::Symlink(target.into()), "{} is {kind:?}", path.escape_ascii());
    }
    let through = place.shelf(b"link/file", Look).and_then(|shelf| shelf.look());
    ensure!(through.is_err(), "a path led through a link");
    Ok(())
}

/// Lists from a path.
fn list(place: &dyn Place, path: &[u8], levels: u32) -> Result<Vec<(Vec<u8>, bool)>, Fault> {
    let (mut found, mut failure) = (Vec::new(), None);
    place.shelf(path, Look)?.list(levels, &slots(), &mut |Surveyed { path, is_last, found: status }| {
        match status {
            Ok(_) => found.push((path, is_last)),
            Err(error) => failure = Some(error),
        }
        true
    });
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(found),
    }
}

fn lists(place: &dyn Place) -> Result<(), Fault> {
    let stocked = place.stocked(false)?;
    // Names are compared one by one, so that `d/x` comes before `d-`.
    let mut expected: Vec<Vec<u8>> = stocked.objects.into_keys().chain([Vec::new()]).collect();
    expected.sort_by(|a, b| a.split(|byte| *byte == b'/').cmp(b.split(|byte| *byte == b'/')));
    expected.sort_by_key(|path| !path.is_empty());
    for levels in [ALL_LEVELS, 2, 1, 0] {
        let depth =
            |path: &[u8]| if path.is_empty() { 0 } else { 1 + path.iter().filter(|byte| **byte == b'/').count() };
        let expected: Vec<_> = expected.iter().filter(|path| depth(path) as u64 <= u64::from(levels)).collect();
        let found = list(place, b"", levels)?;
        let paths: Vec<_> = found.iter().map(|(path, _)| path).collect();
        ensure!(paths == expected, "{levels} levels: {} objects in another order or number", paths.len());
    }
    let below = list(place, b"d", ALL_LEVELS)?;
    let expected = [(&b""[..], true), (b"inner", false), (b"inner/leaf", true), (b"middle", true)];
    let below: Vec<_> = below.iter().map(|(path, is_last)| (&path[..], *is_last)).collect();
    ensure!(below == expected, "{} objects below a directory, or other last ones", below.len());
    ensure!(list(place, b"large", ALL_LEVELS)?.len() == 1, "a file lists as more than itself");
    Ok(())
}

fn stops(place: &dyn Place) -> Result<(), Fault> {
    place.stocked(false)?;
    let mut heard = 0;
    place.shelf(b"", Look)?.list(ALL_LEVELS, &slots(), &mut |_| {
        heard += 1;
        heard < 3
    });
    ensure!(heard == 3, "the listener was called {heard} times, and said at the third that it had enough");
    Ok(())
}

fn walks(place: &dyn Place) -> Result<(), Fault> {
    let stocked = place.stocked(false)?;
    let (mut openers, mut left, mut failure) = (Vec::new(), Vec::new(), None);
    let slots = slots();
    place.shelf(b"", Look)?.walk(ALL_LEVELS, &slots, &mut |visit| {
        match visit {
            Visit::Object { path, status, opener, .. } if status.kind == FileKind::File => {
                openers.push((path.to_vec(), opener()));
            }
            Visit::Object { .. } => {}
            Visit::Left { path } => left.push(path.to_vec()),
            Visit::Failed { error, .. } => failure = Some(error),
        }
        true
    });
    if let Some(error) = failure {
        return Err(error.into());
    }
    ensure!(
        left == [&b"d/inner"[..], b"d", b"hollow", b""],
        "{} directories were left, or in another order",
        left.len()
    );
    let read = move || {
        let read = openers.into_iter().map(|(path, opener)| Ok((path, read_to_end(&*opener()?)?)));
        read.collect::<Result<BTreeMap<_, _>, Fault>>()
    };
    let read = std::thread::spawn(read).join().map_err(|_| Fault::new("a reader panicked"))??;
    let files = stocked.objects.into_iter().filter_map(|(path, seen)| Some((path, seen.into_content()?)));
    ensure!(read == files.collect(), "other files came, or other bytes");
    Ok(())
}

fn makes(place: &dyn Place) -> Result<(), Fault> {
    place.stocked(false)?;
    let make =
        |path: &[u8], with_parents| place.shelf(path, Make { with_parents }).and_then(|shelf| shelf.make(with_parents));
    ensure!(make(b"new", false)?, "what was made is told to have been there");
    ensure!(kind_of(make(b"new", false)) == Some(FailureKind::InTheWay), "it was made a second time");
    ensure!(!make(b"new", true)?, "what was there is told to have been made");
    ensure!(kind_of(make(b"no/parent", false)) == Some(FailureKind::NotFound), "it was made without the one above it");
    ensure!(make(b"with/all/parents", true)?, "what was made is told to have been there");
    ensure!(place.shelf(b"with/all/parents", Look)?.look()?.is_directory(), "it is not there");
    for with_parents in [false, true] {
        ensure!(kind_of(make(b"small", with_parents)) == Some(FailureKind::InTheWay), "a file became a directory");
    }
    Ok(())
}

fn renames(place: &dyn Place) -> Result<(), Fault> {
    place.stocked(false)?;
    let rename = |from: &[u8], to: &[u8], may_replace| {
        let (from, to) = (place.shelf(from, Take)?, place.shelf(to, Take)?);
        from.rename(&*to, may_replace)
    };
    let refused = kind_of(rename(b"small", b"empty", false));
    ensure!(refused == Some(FailureKind::InTheWay), "a name that is taken came to {refused:?}");
    ensure!(place.shelf(b"empty", Look)?.look()?.size_bytes == 0, "what had the name is gone");
    rename(b"small", b"empty", true)?;
    ensure!(place.shelf(b"empty", Look)?.look()?.size_bytes == 1000, "what had the name was not replaced");
    ensure!(kind_of(place.shelf(b"small", Look)?.look()) == Some(FailureKind::NotFound), "it has its old name too");
    rename(b"d", b"hollow/moved", false)?;
    let moved = place.content(b"hollow/moved/inner/leaf")?;
    ensure!(moved.is_some_and(|bytes| bytes.len() == 10), "what was below it did not come with it");
    let gone = kind_of(rename(b"none", b"other", true));
    ensure!(gone == Some(FailureKind::NotFound), "what is not there came to {gone:?}");
    Ok(())
}

fn removes(place: &dyn Place) -> Result<(), Fault> {
    place.stocked(false)?;
    let tally = place.shelf(b"small", Take)?.remove(None, false)?;
    ensure!((tally.files, tally.directories) == (1, 0), "{} files were told to be removed", tally.files);
    ensure!(place.content(b"small")?.is_none(), "it is still there");
    ensure!(kind_of(place.shelf(b"small", Take)?.remove(None, false)) == Some(FailureKind::NotFound), "removed twice");
    ensure!(place.shelf(b"hollow", Take)?.remove(None, false).is_err(), "a directory was removed as a file");
    ensure!(place.shelf(b"d", Take)?.remove(None, true).is_err(), "a directory that is not empty was removed");
    ensure!(place.content(b"d/inner/leaf")?.is_some(), "what is in it is gone");
    let tally = place.shelf(b"hollow", Take)?.remove(None, true)?;
    ensure!((tally.files, tally.directories) == (0, 1), "{} directories were told to be removed", tally.directories);
    ensure!(kind_of(place.shelf(b"hollow", Look)?.look()) == Some(FailureKind::NotFound), "it is still there");
    Ok(())
}

fn removes_versions(place: &dyn Place) -> Result<(), Fault> {
    place.stocked(false)?;
    let before = place.shelf(b"small", Look)?.look()?.version();
    let other = place.shelf(b"large", Look)?.look()?.version();
    let refused = kind_of(place.shelf(b"small", Take)?.remove(Some(&other), false));
    ensure!(refused == Some(FailureKind::Changed), "another version came to {refused:?}");
    ensure!(place.content(b"small")? == Some(content(1, 1000)), "it is gone, or changed");
    place.shelf(b"small", Take)?.remove(Some(&before), false)?;
    ensure!(place.content(b"small")?.is_none(), "it is still there");
    Ok(())
}

fn removes_trees(place: &dyn Place) -> Result<(), Fault> {
    place.stocked(false)?;
    let mut failures = Vec::new();
    let tally = place.shelf(b"d", Take)?.remove_tree(&|| false, &mut |_, error| failures.push(error));
    ensure!(failures.is_empty(), "{failures:?}");
    ensure!((tally.files, tally.directories) == (2, 2), "{} files, {} directories", tally.files, tally.directories);
    ensure!(kind_of(place.shelf(b"d", Look)?.look()) == Some(FailureKind::NotFound), "it is still there");
    ensure!(place.content(b"large")?.is_some(), "what is beside it is gone");
    let tally = place.shelf(b"none", Take)?.remove_tree(&|| false, &mut |_, error| failures.push(error));
    ensure!((tally.failed, failures.len()) == (1, 1), "what is not there was removed");
    let stopped = place.shelf(b"hollow", Take)?.remove_tree(&|| true, &mut |_, _| {});
    ensure!(stopped.directories == 0, "what was stopped was done");
    Ok(())
}

fn root_stays(place: &dyn Place) -> Result<(), Fault> {
    place.stocked(false)?;
    let root = place.shelf(b"", Take)?;
    ensure!(root.remove(None, true).is_err(), "the root was removed");
    let mut failures = 0;
    root.remove_tree(&|| false, &mut |_, _| failures += 1);
    ensure!(failures == 1, "the root was removed with all below it");
    ensure!(root.rename(&*place.shelf(b"other", Take)?, false).is_err(), "the root got another name");
    ensure!(place.shelf(b"large", Take)?.rename(&*root, true).is_err(), "something got the name of the root");
    ensure!(place.content(b"large")?.is_some(), "what is in it is gone");
    Ok(())
}
