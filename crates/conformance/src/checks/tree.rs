//! Directories, links, special files, removal, and changes without content.

use super::publish::with_attributes;
use crate::Ability::{Directories, HardLinks, Keeps, LongPaths, Modes, Nodes, Prune, Sink, Source, Symlinks, Touch};
use crate::check::{Check, Fault, ensure};
use crate::job::{Attempt, MODIFIED, Seen, content, name, published, scan};
use crate::stand::Place;
use model::change::cause;
use model::{Entry, FailureKind, Kind, Node, ObjectId, Timestamp};
use std::sync::Mutex;
use store::{Decision, Fate, LinkRule, Linked, PublishRule};

pub const CHECKS: &[Check] = &[
    Check {
        name: "directories-are-made",
        says: "directories are made, empty ones too, and one that is there already is accepted with what is in it",
        takes: &[Sink, Source, Keeps, Directories],
        run: directories,
    },
    Check {
        name: "directories-end-with-their-time",
        says: "a directory that is finished has the time of its entry, whatever came into it",
        takes: &[Sink, Source, Keeps, Directories, Touch],
        run: directory_times,
    },
    Check {
        name: "fresh-is-what-this-job-made",
        says: "a directory is fresh for the job that made it, and not for the next one",
        takes: &[Sink, Keeps, Directories],
        run: fresh,
    },
    Check {
        name: "looking-makes-nothing",
        says: "looking at a directory that is missing makes none",
        takes: &[Sink, Source, Keeps, Directories],
        run: looking,
    },
    Check {
        name: "kinds-are-in-the-way",
        says: "a file where a directory is to be, and a directory where a file is to be, are errors, and stay",
        takes: &[Sink, Source, Keeps, Directories],
        run: in_the_way,
    },
    Check {
        name: "deep-trees",
        says: "a tree that is deeper than the longest path of the system is written and read",
        takes: &[Sink, Source, Keeps, Directories, LongPaths],
        run: deep,
    },
    Check {
        name: "enter-goes-down",
        says: "after entering a directory, which is made, entries go below it",
        takes: &[Sink, Source, Keeps, Directories],
        run: enter,
    },
    Check {
        name: "symlinks-are-made",
        says: "a symbolic link is made with its target; an equal one is told to be there; what may replace nothing does not",
        takes: &[Sink, Source, Keeps, Symlinks],
        run: symlinks,
    },
    Check {
        name: "nodes-are-made",
        says: "a FIFO is made, and an equal one is told to be there",
        takes: &[Sink, Source, Keeps, Nodes],
        run: nodes,
    },
    Check {
        name: "hard-links-are-made",
        says: "a published file gets another name; twice is once; one that is not as described is not linked",
        takes: &[Sink, Source, Keeps, HardLinks],
        run: hard_links,
    },
    Check {
        name: "prune-removes-the-rest",
        says: "what the source does not have is removed, content before its directory; what is listed or spared stays",
        takes: &[Sink, Source, Keeps, Directories, Prune],
        run: prunes,
    },
    Check {
        name: "prune-rehearses",
        says: "a rehearsal tells of everything that would be removed, and removes nothing",
        takes: &[Sink, Source, Keeps, Directories, Prune],
        run: rehearses,
    },
    Check {
        name: "touch-sets-the-time",
        says: "a file gets the time of its entry and keeps its content",
        takes: &[Sink, Source, Keeps, Touch],
        run: touches,
    },
    Check {
        name: "amend-changes-what-differs",
        says: "a mode that differs is told, then changed without content, and then differs no more",
        takes: &[Sink, Source, Keeps, Modes],
        run: amends,
    },
];

fn directories(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let above = job.directory(ObjectId::ROOT, name("d"))?;
    job.directory(above.id, name("hollow"))?;
    job.put(&job.file(above.id, name("file"), 3), b"one", PublishRule::NoReplace)?;
    job.close(place)?;
    let job = Attempt::at(place)?;
    let again = job.directory(ObjectId::ROOT, name("d"))?;
    job.put(&job.file(again.id, name("other"), 3), b"two", PublishRule::NoReplace)?;
    job.close(place)?;
    let found = published(place)?;
    let file = |text: &str| Seen::File(text.into());
    let expected =
        [("d", Seen::Directory), ("d/file", file("one")), ("d/hollow", Seen::Directory), ("d/other", file("two"))];
    for (path, seen) in &expected {
        ensure!(found.get(path.as_bytes()) == Some(seen), "{path} is {:?}", found.get(path.as_bytes()));
    }
    ensure!(found.len() == expected.len(), "{} objects are there", found.len());
    Ok(())
}

/// The entry at a path.
fn at(place: &dyn Place, path: &str) -> Result<Entry, Fault> {
    let source = place.source().ok_or_else(|| Fault::new("there is no source"))?;
    let found = scan(&*source)?.into_iter().find(|object| source.path(object) == path.as_bytes());
    Ok(found.ok_or_else(|| Fault::new(format!("{path} is not there")))?.entry)
}

fn directory_times(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let above = job.directory(ObjectId::ROOT, name("d"))?;
    let below = job.directory(above.id, name("inner"))?;
    job.put(&job.file(below.id, name("file"), 3), b"one", PublishRule::NoReplace)?;
    job.sink.finish_directory(&below)?;
    job.sink.finish_directory(&above)?;
    job.close(place)?;
    for path in ["d", "d/inner"] {
        let there = at(place, path)?.generation.modified;
        ensure!(there == place.kept(MODIFIED), "{path} has the time {there:?}");
    }
    Ok(())
}

fn fresh(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let made = job.directory(ObjectId::ROOT, name("d"))?;
    ensure!(job.sink.is_fresh(made.id), "what the job made is not fresh");
    job.close(place)?;
    let job = Attempt::at(place)?;
    let found = job.directory(ObjectId::ROOT, name("d"))?;
    ensure!(!job.sink.is_fresh(found.id), "what was there is fresh");
    ensure!(!job.sink.is_fresh(ObjectId::ROOT), "the destination itself is fresh");
    job.close(place)
}

fn looking(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    job.directory(ObjectId::ROOT, name("there"))?;
    job.close(place)?;
    let job = Attempt::at(place)?;
    let describe = |text| Entry { kind: Kind::Directory, ..job.file(ObjectId::ROOT, name(text), 0) };
    let (missing, there) = (describe("missing"), describe("there"));
    job.sink.look_directory(&missing)?;
    job.sink.look_directory(&there)?;
    ensure!(job.sink.is_fresh(missing.id), "something is looked for in a directory that is missing");
    ensure!(!job.sink.is_fresh(there.id), "nothing is looked for in a directory that is there");
    let found = published(place)?;
    ensure!(found.len() == 1, "{} objects are there instead of one", found.len());
    job.close(place)
}

fn in_the_way(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    job.directory(ObjectId::ROOT, name("d"))?;
    job.put(&job.file(ObjectId::ROOT, name("f"), 3), b"one", PublishRule::NoReplace)?;
    job.close(place)?;
    let job = Attempt::at(place)?;
    let directory = Entry { kind: Kind::Directory, ..job.file(ObjectId::ROOT, name("f"), 0) };
    let made = job.sink.make_directory(&directory).err().map(|e| e.kind);
    ensure!(made == Some(FailureKind::InTheWay), "a directory at a file's name came to {made:?}");
    let decided = job.sink.decide(&job.file(ObjectId::ROOT, name("d"), 3)).err().map(|e| e.kind);
    ensure!(decided == Some(FailureKind::InTheWay), "a file at a directory's name was decided as {decided:?}");
    let put = job.try_put(&job.file(ObjectId::ROOT, name("d"), 3), b"two", PublishRule::Replace);
    ensure!(put.is_err(), "a directory was replaced by a file");
    let found = published(place)?;
    ensure!(found.get(&b"d"[..]) == Some(&Seen::Directory), "the directory is gone");
    ensure!(found.get(&b"f"[..]) == Some(&Seen::File(b"one".into())), "the file is gone");
    job.close(place)
}

fn deep(place: &dyn Place) -> Result<(), Fault> {
    const LEVELS: usize = 30;
    let job = Attempt::at(place)?;
    let long = "x".repeat(200);
    let mut above = ObjectId::ROOT;
    for _ in 0..LEVELS {
        above = job.directory(above, name(&long))?.id;
    }
    let entry = job.file(above, name("file"), 3);
    job.put(&entry, b"one", PublishRule::NoReplace)?;
    job.put_large(&job.file(above, name("large"), 5), b"large", PublishRule::NoReplace)?;
    let path = format!("{}file", format!("{long}/").repeat(LEVELS));
    ensure!(job.sink.path(&entry) == path.as_bytes(), "its path is told otherwise");
    let found = published(place)?;
    ensure!(found.get(path.as_bytes()) == Some(&Seen::File(b"one".into())), "the small file is not there");
    ensure!(found.len() == LEVELS + 2, "{} objects are there", found.len());
    job.close(place)
}

fn enter(place: &dyn Place) -> Result<(), Fault> {
    for text in ["one", "two"] {
        let job = Attempt::at(place)?;
        job.sink.enter(&name("d"))?;
        job.sink.enter(&name("e"))?;
        job.put(&job.file(ObjectId::ROOT, name(text), 3), text.as_bytes(), PublishRule::NoReplace)?;
        job.close(place)?;
    }
    let found = published(place)?;
    let paths: Vec<_> = found.keys().map(|path| path.escape_ascii().to_string()).collect();
    ensure!(paths == ["d", "d/e", "d/e/one", "d/e/two"], "{paths:?} are there");
    Ok(())
}

fn symlinks(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let link = |text, target: &[u8]| job.other(name(text), Kind::Symlink(target.into()));
    let long = [b'a'; 1000];
    for target in [&b"file"[..], b"../../outside", b"/\xff\n", &long] {
        let entry = link("link", target);
        ensure!(job.sink.make_symlink(&entry, PublishRule::Replace)?, "a new link is told to be there");
        ensure!(!job.sink.make_symlink(&entry, PublishRule::Replace)?, "an equal link is told to be new");
        let found = published(place)?;
        ensure!(found.get(&b"link"[..]) == Some(&Seen::Symlink(target.into())), "the link points elsewhere");
    }
    let refused = job.sink.make_symlink(&link("link", b"other"), PublishRule::NoReplace).err().map(|e| e.kind);
    ensure!(refused == Some(FailureKind::InTheWay), "a link that may replace nothing came to {refused:?}");
    let found = published(place)?;
    ensure!(found.get(&b"link"[..]) == Some(&Seen::Symlink(long.into())), "the link that stood there is gone");
    job.close(place)
}

fn nodes(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let entry = job.other(name("pipe"), Kind::Node(Node::Fifo));
    ensure!(job.sink.make_node(&entry, PublishRule::NoReplace)?, "a new FIFO is told to be there");
    ensure!(!job.sink.make_node(&entry, PublishRule::NoReplace)?, "an equal FIFO is told to be new");
    let there = at(place, "pipe")?;
    ensure!(there.kind == Kind::Node(Node::Fifo), "it is {:?}", there.kind);
    job.close(place)
}

fn hard_links(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let rule = LinkRule { may_make: true, may_replace: false, ignores_time: false, is_rehearsal: false };
    let first = job.file(ObjectId::ROOT, name("first"), 3);
    let second = job.other(name("second"), Kind::HardLink(first.id));
    let none = job.sink.make_hard_link(&first, &second, rule)?;
    ensure!(none == Linked::NoFile, "a file that is not there came to {none:?}");
    job.put(&first, b"one", PublishRule::NoReplace)?;
    let rehearsed = job.sink.make_hard_link(&first, &second, LinkRule { is_rehearsal: true, ..rule })?;
    ensure!(rehearsed == Linked::Made { has_replaced: false }, "a rehearsal came to {rehearsed:?}");
    ensure!(published(place)?.len() == 1, "a rehearsal made a name");
    let kept = job.sink.make_hard_link(&first, &second, LinkRule { may_make: false, ..rule })?;
    ensure!(kept == Linked::Kept, "what may not be made came to {kept:?}");
    let made = job.sink.make_hard_link(&first, &second, rule)?;
    ensure!(made == Linked::Made { has_replaced: false }, "a new name came to {made:?}");
    let again = job.sink.make_hard_link(&first, &second, rule)?;
    ensure!(again == Linked::There, "the same name again came to {again:?}");
    let found = published(place)?;
    ensure!(found.get(&b"second"[..]) == Some(&Seen::File(b"one".into())), "the second name has other content");
    job.put(&job.file(ObjectId::ROOT, name("other"), 5), b"other", PublishRule::NoReplace)?;
    let other = job.other(name("other"), Kind::HardLink(first.id));
    let kept = job.sink.make_hard_link(&first, &other, rule)?;
    ensure!(kept == Linked::Kept, "a name that is taken came to {kept:?}");
    let replaced = job.sink.make_hard_link(&first, &other, LinkRule { may_replace: true, ..rule })?;
    ensure!(replaced == Linked::Made { has_replaced: true }, "a name to be replaced came to {replaced:?}");
    let found = published(place)?;
    ensure!(found.get(&b"other"[..]) == Some(&Seen::File(b"one".into())), "the replaced name has other content");
    job.close(place)
}

/// Fills a place, and removes all but `a`, `d` and what is called `spared`. Returns what was told to be removed.
fn prune(place: &dyn Place, is_rehearsal: bool) -> Result<Vec<String>, Fault> {
    let job = Attempt::at(place)?;
    let [d, e] = ["d", "e"].map(|text| job.directory(ObjectId::ROOT, name(text)));
    let (d, e) = (d?, e?);
    let deep = job.directory(e.id, name("deep"))?;
    let held = job.directory(ObjectId::ROOT, name("held"))?;
    for (parent, text) in
        [(ObjectId::ROOT, "a"), (ObjectId::ROOT, "b"), (d.id, "x"), (deep.id, "y"), (held.id, "spared"), (held.id, "z")]
    {
        job.put(&job.file(parent, name(text), 3), b"one", PublishRule::NoReplace)?;
    }
    job.close(place)?;
    let job = Attempt::at(place)?;
    let d = job.directory(ObjectId::ROOT, name("d"))?.id;
    let (mut removed, failures) = (Vec::new(), Mutex::new(Vec::new()));
    job.sink.prune(&mut store::Prune {
        directories: &[ObjectId::ROOT, d],
        is_listed: &|directory, name| directory == ObjectId::ROOT && matches!(name.as_bytes(), b"a" | b"d"),
        is_listed_alike: &|_, _| false,
        fate: &|path, _| if path.ends_with(b"spared") { Fate::Spare } else { Fate::Remove },
        is_rehearsal,
        removed: &mut |path, is_directory| {
            removed.push(format!("{}{}", path.escape_ascii(), if is_directory { "/" } else { "" }));
        },
        failed: &mut |failure| failures.lock().unwrap().push(failure),
        goes_on: &|| true,
    });
    let failures = failures.into_inner().unwrap();
    ensure!(failures.is_empty(), "{failures:?}");
    let place_of = |text: &str| removed.iter().position(|one| one == text);
    ensure!(place_of("e/deep/y") < place_of("e/deep/") && place_of("e/deep/") < place_of("e/"), "{removed:?}: order");
    removed.sort();
    ensure!(removed == ["b", "d/x", "e/", "e/deep/", "e/deep/y", "held/z"], "{removed:?} were told to be removed");
    job.close(place)?;
    Ok(removed)
}

fn prunes(place: &dyn Place) -> Result<(), Fault> {
    prune(place, false)?;
    let paths: Vec<_> = published(place)?.into_keys().map(|path| path.escape_ascii().to_string()).collect();
    ensure!(paths == ["a", "d", "held", "held/spared"], "{paths:?} are left");
    Ok(())
}

fn rehearses(place: &dyn Place) -> Result<(), Fault> {
    prune(place, true)?;
    let there = published(place)?.len();
    ensure!(there == 10, "{there} of 10 objects are left");
    Ok(())
}

fn touches(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let bytes = content(1, 2000);
    let mut entry = job.file(ObjectId::ROOT, name("file"), bytes.len());
    job.put(&entry, &bytes, PublishRule::NoReplace)?;
    entry.generation.modified = Timestamp { seconds: 77, nanoseconds: 7 };
    job.sink.touch(&entry)?;
    job.sink.sync_names()?;
    let there = at(place, "file")?.generation.modified;
    ensure!(there == place.kept(entry.generation.modified), "it has another time");
    ensure!(place.content(b"file")?.as_ref() == Some(&bytes), "it has other content");
    ensure!(matches!(job.sink.decide(&entry)?, Decision::Same), "it is not the same afterwards");
    ensure!(job.sink.touch(&job.file(ObjectId::ROOT, name("none"), 0)).is_err(), "what is not there got a time");
    job.close(place)
}

fn amends(place: &dyn Place) -> Result<(), Fault> {
    let job = Attempt::at(place)?;
    let entry = with_attributes(job.file(ObjectId::ROOT, name("file"), 3));
    job.put(&entry, b"one", PublishRule::NoReplace)?;
    let as_is = job.sink.differences(&entry)?;
    ensure!(as_is == 0, "what was just published differs by {as_is:b}");
    let entry = Entry { mode: 0o600, ..entry };
    let (told, changed) = (job.sink.differences(&entry)?, job.sink.amend(&entry)?);
    ensure!((told, changed) == (cause::MODE, cause::MODE), "a mode was told as {told:b} and changed as {changed:b}");
    let (told, changed) = (job.sink.differences(&entry)?, job.sink.amend(&entry)?);
    ensure!((told, changed) == (0, 0), "afterwards it was told as {told:b} and changed as {changed:b}");
    let there = at(place, "file")?;
    ensure!(there.mode == 0o600, "it has the mode {:o}", there.mode);
    ensure!(place.content(b"file")?.as_deref() == Some(b"one"), "it has other content");
    job.close(place)
}
